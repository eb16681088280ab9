#ifdef _WIN32
#define _CRT_SECURE_NO_WARNINGS /* strerror */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <shellapi.h>
#else
#define _XOPEN_SOURCE 700
#include <sys/stat.h>
#include <unistd.h>
#endif

#include "files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The file being written. */
static FILE *written;
static char *target, *temporary;

#ifdef _WIN32
static FILE *open_file(const char *path, const char *mode);
static void remove_file(const char *path);
#else
static FILE *open_file(const char *path, const char *mode) { return fopen(path, mode); }
static void remove_file(const char *path) { remove(path); }
#endif

void fail(const char *format, ...) {
    char text[4096], *c;
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    for (c = text; *c; ++c) *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c; /* names in files may hold lines */
    fprintf(stderr, "apply_model: %s\n", text);
    if (written) fclose(written); /* Windows keeps what is open */
    if (temporary) remove_file(temporary);
    exit(2);
}

void *allocate(size_t count, size_t size) { return enlarge(NULL, count, size); }

void *enlarge(void *memory, size_t count, size_t size) {
    void *more = size != 0 && count > (SIZE_MAX - 1) / size ? NULL : realloc(memory, count * size + 1);
    if (!more) fail("not enough memory for %.0f bytes", (double)count * (double)size);
    return more;
}

static char *joined(const char *text, const char *more) {
    const size_t length = strlen(text);
    char *result = allocate(length + strlen(more) + 1, 1);
    memcpy(result, text, length);
    memcpy(result + length, more, strlen(more) + 1);
    return result;
}

char *join_path(const char *folder, const char *name) {
    char *with_slash = joined(folder, "/"), *path = joined(with_slash, name);
    free(with_slash);
    return path;
}

char *read_file(const char *path, size_t *size) {
    FILE *file = open_file(path, "rb");
    size_t capacity = 1 << 16, length = 0, got;
    char *text;
    if (!file) fail("%s: cannot be opened: %s", path, strerror(errno));
    text = allocate(capacity, 1);
    while ((got = fread(text + length, 1, capacity - length, file)) > 0) {
        length += got;
        if (length == capacity) text = enlarge(text, capacity *= 2, 1);
    }
    if (ferror(file)) fail("%s: cannot be read: %s", path, strerror(errno));
    fclose(file);
    text[length] = 0;
    *size = length;
    return text;
}

#ifdef _WIN32
static unsigned long process_id(void) { return GetCurrentProcessId(); }

wchar_t *wide_path(const char *path) {
    const int length = MultiByteToWideChar(CP_UTF8, 0, path, -1, NULL, 0);
    wchar_t *given = allocate((size_t)length + 1, sizeof *given), *result;
    DWORD room;
    MultiByteToWideChar(CP_UTF8, 0, path, -1, given, length);
    room = GetFullPathNameW(given, 0, NULL, NULL);
    if (room == 0) fail("%s: not a path", path);
    result = allocate((size_t)room + 9, sizeof *result);
    /* 260 characters are the limit, but for a path with this prefix; "\\server\share" takes another one. */
    wcscpy(result, L"\\\\?\\");
    if (GetFullPathNameW(given, room, result + 4, NULL) >= room) fail("%s: not a path", path);
    if (wcslen(result + 4) < 240 || !wcsncmp(result + 4, L"\\\\?\\", 4)) {
        memmove(result, result + 4, (wcslen(result + 4) + 1) * sizeof *result);
    } else if (!wcsncmp(result + 4, L"\\\\", 2)) {
        memmove(result + 8, result + 6, (wcslen(result + 6) + 1) * sizeof *result);
        memcpy(result, L"\\\\?\\UNC\\", 8 * sizeof *result);
    }
    free(given);
    return result;
}

static FILE *open_file(const char *path, const char *mode) {
    wchar_t *wide = wide_path(path);
    FILE *file = _wfopen(wide, *mode == 'r' ? L"rb" : L"wb");
    free(wide);
    return file;
}

static void remove_file(const char *path) {
    wchar_t *wide = wide_path(path);
    _wremove(wide);
    free(wide);
}

/* Whether a file took the place of another. A virus scanner or a viewer may hold that for a moment. */
static int replace(const char *from, const char *to) {
    wchar_t *wide_from = wide_path(from), *wide_to = wide_path(to);
    int tries, done = 0;
    for (tries = 0; tries < 50 && !done; ++tries) {
        if (tries) Sleep(100);
        done = MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING);
        if (!done && GetLastError() != ERROR_ACCESS_DENIED && GetLastError() != ERROR_SHARING_VIOLATION) break;
    }
    free(wide_from);
    free(wide_to);
    return done;
}

static void refuse_what_stays(const char *path) {
    wchar_t *wide = wide_path(path);
    const DWORD attributes = GetFileAttributesW(wide);
    free(wide);
    if (attributes == INVALID_FILE_ATTRIBUTES) return;
    if (attributes & FILE_ATTRIBUTE_DIRECTORY) fail("%s: expected a file to write, got a folder", path);
    if (attributes & FILE_ATTRIBUTE_READONLY) fail("%s: the file is read-only; choose another name", path);
}

int same_file(const char *one, const char *other) {
    wchar_t *wide_one = wide_path(one), *wide_other = wide_path(other);
    const int same = !_wcsicmp(wide_one, wide_other);
    free(wide_one);
    free(wide_other);
    return same;
}

static UINT console_before;
static void restore_console(void) { SetConsoleOutputCP(console_before); }

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
    console_before = GetConsoleOutputCP();
    if (console_before && SetConsoleOutputCP(CP_UTF8)) atexit(restore_console);
    return result;
}
#else
static unsigned long process_id(void) { return (unsigned long)getpid(); }

static int replace(const char *from, const char *to) { return rename(from, to) == 0; }

static void refuse_what_stays(const char *path) {
    struct stat about;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
        fail("%s: expected a file to write, got a %s", path, S_ISDIR(about.st_mode) ? "folder" : "device");
    }
}

int same_file(const char *one, const char *other) {
    struct stat about_one, about_other;
    return stat(one, &about_one) == 0 && stat(other, &about_other) == 0 && about_one.st_dev == about_other.st_dev &&
           about_one.st_ino == about_other.st_ino;
}

char **utf8_arguments(int *count, char **given) {
    (void)count;
    return given;
}
#endif

FILE *begin_file(const char *path) {
    char suffix[32];
    refuse_what_stays(path);
    snprintf(suffix, sizeof suffix, ".%lu.tmp", process_id()); /* another process may write the same file */
    target = joined(path, "");
    temporary = joined(path, suffix);
    written = open_file(temporary, "wb");
    if (!written) fail("%s: cannot be written: %s", path, strerror(errno));
    return written;
}

void finish_file(void) {
    const int failed = ferror(written), unfinished = fclose(written);
    written = NULL;
    if (failed || unfinished) fail("%s: could not be written whole; is the disk full?", target);
    if (!replace(temporary, target)) fail("%s: cannot be replaced; close the program that uses it", target);
    free(temporary);
    free(target);
    temporary = target = NULL;
}
