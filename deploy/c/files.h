/* Files, memory and the end of the program: what every part of it uses. Paths are UTF-8 on every system. */
#ifndef FILES_H
#define FILES_H

#include <stddef.h>
#include <stdio.h>

/* Prints "apply_model: <message>" to standard error and ends the program with exit code 2. */
void fail(const char *format, ...);

/* Memory that is there; ends the program where there is none. */
void *allocate(size_t count, size_t size);
void *enlarge(void *memory, size_t count, size_t size);

FILE *open_file(const char *path, const char *mode);

/* A whole file with a zero byte after it; *size is without it. To be freed. */
char *read_file(const char *path, size_t *size);

/* folder/name, to be freed. */
char *join_path(const char *folder, const char *name);

/* The words of the command line as UTF-8. */
char **utf8_arguments(int *count, char **given);

#endif
