/* Reads JSON in one walk, without a tree: the caller asks for what it expects, in the order in which it stands. */
#ifndef JSON_H
#define JSON_H

#include <stddef.h>

typedef struct json_reader {
    const char *path; /* for messages */
    const char *begin, *at, *end;
} json_reader;

/* A text of `size` bytes, UTF-8 with or without a byte order mark, and a zero byte after it. */
json_reader json_open(const char *path, const char *text, size_t size);

/* Whether an object or array that begins with `open` ('{' or '[') has another member; call it before each, with a
 * count that was 0 before the first. */
int json_next(json_reader *r, char open, long long *members);
/* The name of a member, or a string value, as UTF-8; to be freed. */
char *json_string(json_reader *r);
void json_colon(json_reader *r);
/* A finite number; an integer of at most 2^53, which doubles hold exactly. */
double json_number(json_reader *r);
long long json_integer(json_reader *r);
int json_boolean(json_reader *r);
void json_skip(json_reader *r); /* any value */
void json_end(json_reader *r);
/* Ends the program: what was expected at this place of the file. */
void json_expected(const json_reader *r, const char *what);

#endif
