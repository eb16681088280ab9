/* The functions of sage_attention.h that are used here, found in a library that is loaded while the program runs: it
 * is the one in the wheel, and no import library is needed. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include "sage_attention.h"

extern const char *(*sage_last_error)(void);
extern int32_t (*sage_abi_version)(void);
extern int32_t (*sage_coo_to_csc)(const void *, const void *, int32_t, int64_t, int64_t, int64_t, int64_t *, void *,
                                  int64_t *);
extern int32_t (*sage_aggregate)(const sage_attention_graph *, int32_t, const void *, const void *, int32_t, const float *, int64_t, void *,
                                 int32_t);
extern int32_t (*sage_forward)(const sage_attention_problem *, const sage_attention_result *);

/* Ends the program if the file is no such library, or one of another ABI. */
void load_library(const char *path);
/* Ends the program with the library's own words if a call did not succeed. */
void check(int32_t status);

#endif
