#include "library.h"

#include <string.h>

#include "files.h"

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <stdlib.h>
#else
#include <dlfcn.h>
#endif

const char *(*sage_last_error)(void);
int32_t (*sage_abi_version)(void);
int32_t (*sage_coo_to_csc)(const void *, const void *, int32_t, int64_t, int64_t, int64_t, int64_t *, void *,
                           int64_t *);
int32_t (*sage_aggregate)(const sage_attention_graph *, int32_t, const void *, const void *, int32_t, const float *, int64_t,
                          void *, int32_t);
int32_t (*sage_forward)(const sage_attention_problem *, const sage_attention_result *);

/* Never run: the compiler holds the pointers' types against the header's functions. */
enum {
    kTypesAgree = sizeof(sage_last_error = sage_attention_last_error) +
    sizeof(sage_abi_version = sage_attention_abi_version) + sizeof(sage_coo_to_csc = sage_attention_coo_to_csc) +
    sizeof(sage_aggregate = sage_attention_aggregate) + sizeof(sage_forward = sage_attention_forward)
};

/* Sets a pointer to the function `name`; ISO C has no cast from an object's address to a function's. */
static void find(const char *path, void *library, const char *name, void *pointer) {
#ifdef _WIN32
    const FARPROC function = GetProcAddress((HMODULE)library, name);
#else
    void *function = dlsym(library, name);
#endif
    if (!function) fail("%s: expected a function %s, got none", path, name);
    memcpy(pointer, &function, sizeof function);
}

void load_library(const char *path) {
#ifdef _WIN32
    wchar_t *full = wide_path(path);
    void *library;
    SetErrorMode(SEM_FAILCRITICALERRORS); /* no box that waits for somebody to press OK */
    library = LoadLibraryExW(full, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS | LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR);
    if (!library) {
        const DWORD code = GetLastError();
        fail("%s: cannot be loaded, Windows error %lu%s", path, code,
             code == ERROR_BAD_EXE_FORMAT ? "; expected a DLL for this program's processor" : "");
    }
    free(full);
#else
    char *full = strchr(path, '/') ? NULL : join_path(".", path);
    void *library = dlopen(full ? full : path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail("%s", dlerror());
#endif
    find(path, library, "sage_attention_last_error", &sage_last_error);
    find(path, library, "sage_attention_abi_version", &sage_abi_version);
    if (sage_abi_version() != SAGE_ATTENTION_ABI_VERSION) {
        fail("%s: expected ABI %d, got %d", path, SAGE_ATTENTION_ABI_VERSION, (int)sage_abi_version());
    }
    find(path, library, "sage_attention_coo_to_csc", &sage_coo_to_csc);
    find(path, library, "sage_attention_aggregate", &sage_aggregate);
    find(path, library, "sage_attention_forward", &sage_forward);
}

void check(int32_t status) {
    if (status != SAGE_ATTENTION_OK) fail("%s", sage_last_error());
}
