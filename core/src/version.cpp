#include "sage_attention.h"

extern "C" const char* sage_attention_version(void) { return SAGE_ATTENTION_VERSION; }
extern "C" int32_t sage_attention_abi_version(void) { return SAGE_ATTENTION_ABI_VERSION; }
