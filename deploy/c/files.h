/* Files, memory and the end of the program: what every part of it uses. Paths are UTF-8 on every system. */
#ifndef FILES_H
#define FILES_H

#include <stddef.h>
#include <stdio.h>

/* Prints "apply_model: <message>" to standard error, as one line, and ends the program with exit code 2. */
void fail(const char *format, ...);

/* Memory that is there; ends the program where there is none. */
void *allocate(size_t count, size_t size);
void *enlarge(void *memory, size_t count, size_t size);

/* A whole file with a zero byte after it; *size is without it. To be freed. */
char *read_file(const char *path, size_t *size);

/* Opens a file beside `path` for writing, and gives it that name once it is complete: whatever happens, there is
 * either the file of before or a whole one. One at a time. */
FILE *begin_file(const char *path);
void finish_file(void);

/* Whether two names lead to one file that exists. */
int same_file(const char *one, const char *other);

/* folder/name, to be freed. */
char *join_path(const char *folder, const char *name);

/* The words of the command line as UTF-8; whatever the program prints is then UTF-8 too. */
char **utf8_arguments(int *count, char **given);

#ifdef _WIN32
/* A path as Windows takes it, absolute and without limit of length, to be freed. */
wchar_t *wide_path(const char *path);
#endif

#endif
