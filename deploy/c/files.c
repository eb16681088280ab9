#include "files.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <shellapi.h>
#endif

void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs("apply_model: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(2);
}

void *allocate(size_t count, size_t size) { return enlarge(NULL, count, size); }

void *enlarge(void *memory, size_t count, size_t size) {
    void *more = size != 0 && count > SIZE_MAX / size ? NULL : realloc(memory, count * size + 1);
    if (!more) fail("not enough memory for %.0f bytes", (double)count * (double)size);
    return more;
}

#ifdef _WIN32
static wchar_t *wide(const char *text) {
    const int length = MultiByteToWideChar(CP_UTF8, 0, text, -1, NULL, 0);
    wchar_t *result = allocate((size_t)length + 1, sizeof *result);
    MultiByteToWideChar(CP_UTF8, 0, text, -1, result, length);
    return result;
}

FILE *open_file(const char *path, const char *mode) {
    wchar_t *wide_path = wide(path), *wide_mode = wide(mode);
    FILE *file = _wfopen(wide_path, wide_mode);
    free(wide_path);
    free(wide_mode);
    if (!file) fail("%s: cannot be opened", path);
    return file;
}

/* What main is given went through the system's code page, which lacks most characters. */
char **utf8_arguments(int *count, char **given) {
    wchar_t **words = CommandLineToArgvW(GetCommandLineW(), count);
    char **result;
    int i;
    (void)given;
    if (!words) fail("the command line cannot be read");
    result = allocate((size_t)*count + 1, sizeof *result);
    for (i = 0; i < *count; ++i) {
        const int length = WideCharToMultiByte(CP_UTF8, 0, words[i], -1, NULL, 0, NULL, NULL);
        result[i] = allocate((size_t)length + 1, 1);
        WideCharToMultiByte(CP_UTF8, 0, words[i], -1, result[i], length, NULL, NULL);
    }
    LocalFree(words);
    return result;
}
#else
FILE *open_file(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (!file) fail("%s: cannot be opened", path);
    return file;
}

char **utf8_arguments(int *count, char **given) {
    (void)count;
    return given;
}
#endif

char *read_file(const char *path, size_t *size) {
    FILE *file = open_file(path, "rb");
    size_t capacity = 1 << 16, length = 0, got;
    char *text = allocate(capacity, 1);
    while ((got = fread(text + length, 1, capacity - length, file)) > 0) {
        length += got;
        if (length == capacity) text = enlarge(text, capacity *= 2, 1);
    }
    if (ferror(file)) fail("%s: cannot be read", path);
    fclose(file);
    text[length] = 0;
    *size = length;
    return text;
}

char *join_path(const char *folder, const char *name) {
    const size_t length = strlen(folder);
    char *path = allocate(length + strlen(name) + 2, 1);
    memcpy(path, folder, length);
    path[length] = '/';
    memcpy(path + length + 1, name, strlen(name) + 1);
    return path;
}
