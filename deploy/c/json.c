#include "json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

/* The first byte that is not UTF-8, or the end. */
static const char *end_of_utf8(const char *text, const char *end) {
    const unsigned char *at = (const unsigned char *)text;
    while ((const char *)at < end) {
        const int more = *at < 0x80 ? 0 : *at < 0xc2 ? 9 : *at < 0xe0 ? 1 : *at < 0xf0 ? 2 : *at < 0xf5 ? 3 : 9;
        int i;
        if (more >= end - (const char *)at) break;
        for (i = 1; i <= more && (at[i] & 0xc0) == 0x80;) ++i;
        if (i <= more) break;
        if ((*at == 0xe0 && at[1] < 0xa0) || (*at == 0xf0 && at[1] < 0x90)) break; /* longer than need be */
        if ((*at == 0xed && at[1] > 0x9f) || (*at == 0xf4 && at[1] > 0x8f)) break; /* surrogates; beyond Unicode */
        at += 1 + more;
    }
    return (const char *)at;
}

json_reader json_open(const char *path, const char *text, size_t size) {
    json_reader r;
    r.path = path;
    r.begin = text;
    r.end = text + size;
    r.at = end_of_utf8(text, r.end);
    if (r.at != r.end) json_expected(&r, "UTF-8 text");
    r.at = size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? text + 3 : text;
    return r;
}

void json_expected(const json_reader *r, const char *what) {
    fail("%s, byte %lld: expected %s", r->path, (long long)(r->at - r->begin), what);
}

static char peek(json_reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) ++r->at;
    return r->at < r->end ? *r->at : 0;
}

int json_next(json_reader *r, char open, long long *members) {
    const char close = open == '{' ? '}' : ']';
    if (peek(r) != (*members ? ',' : open)) {
        if (!*members) json_expected(r, open == '{' ? "an object" : "an array");
        if (peek(r) != close) json_expected(r, open == '{' ? "a comma or }" : "a comma or ]");
        return ++r->at, 0;
    }
    ++r->at;
    if (!*members && peek(r) == close) return ++r->at, 0;
    ++*members;
    return 1;
}

static void append_utf8(char *out, size_t *length, unsigned code) {
    if (code < 0x80) {
        out[(*length)++] = (char)code;
    } else if (code < 0x800) {
        out[(*length)++] = (char)(0xc0 | code >> 6);
        out[(*length)++] = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        out[(*length)++] = (char)(0xe0 | code >> 12);
        out[(*length)++] = (char)(0x80 | (code >> 6 & 63));
        out[(*length)++] = (char)(0x80 | (code & 63));
    } else {
        out[(*length)++] = (char)(0xf0 | code >> 18);
        out[(*length)++] = (char)(0x80 | (code >> 12 & 63));
        out[(*length)++] = (char)(0x80 | (code >> 6 & 63));
        out[(*length)++] = (char)(0x80 | (code & 63));
    }
}

static unsigned hexadecimal(json_reader *r) {
    unsigned code = 0;
    int i;
    for (i = 0; i < 4; ++i, ++r->at) {
        const char c = r->at < r->end ? *r->at : 0;
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const char *place = c ? strchr(digits, c) : NULL;
        if (!place) json_expected(r, "four hexadecimal digits");
        code = code * 16 + (unsigned)(place - digits) % 16;
    }
    return code;
}

char *json_string(json_reader *r) {
    const char *start;
    char *text;
    size_t length = 0;
    if (peek(r) != '"') json_expected(r, "a string");
    for (start = ++r->at; r->at < r->end && *r->at != '"'; ++r->at) {
        if (*r->at == '\\' && r->at + 1 < r->end) ++r->at;
    }
    if (r->at >= r->end) json_expected(r, "the end of a string");
    text = allocate((size_t)(r->at - start) + 1, 1);
    r->at = start;
    while (*r->at != '"') {
        char c = *r->at++;
        if ((unsigned char)c < ' ') json_expected(r, "a string without control characters");
        if (c == '\\') {
            static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
            const char *place;
            c = *r->at++;
            place = c ? strchr(escapes, c) : NULL;
            if (c == 'u') {
                unsigned code = hexadecimal(r);
                if (code >= 0xd800 && code < 0xdc00 && r->at[0] == '\\' && r->at[1] == 'u') {
                    const unsigned low = (r->at += 2, hexadecimal(r));
                    code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : 0;
                }
                if (code == 0 || (code >= 0xd800 && code < 0xe000)) json_expected(r, "a whole character before this");
                append_utf8(text, &length, code);
                continue;
            }
            if (!place) json_expected(r, "an escape that JSON knows");
            c = meant[place - escapes];
        }
        text[length++] = c;
    }
    ++r->at;
    text[length] = 0;
    return text;
}

void json_colon(json_reader *r) {
    if (peek(r) != ':') json_expected(r, "a colon");
    ++r->at;
}

double json_number(json_reader *r) {
    char *end;
    double value;
    const char c = peek(r), *stop = r->at, *digits = r->at + (c == '-');
    if (c != '-' && (c < '0' || c > '9')) json_expected(r, "a number");
    while (stop < r->end && *stop && strchr("+-.0123456789Ee", *stop)) ++stop;
    value = strtod(r->at, &end); /* it knows more than JSON: hexadecimal ones, infinity */
    if (end != stop || !isfinite(value) || (digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9'))
        json_expected(r, "a finite number");
    r->at = stop;
    return value;
}

long long json_integer(json_reader *r) {
    const char *start;
    const double value = (peek(r), start = r->at, json_number(r)), limit = 9007199254740992.0;
    if (!(value >= -limit && value <= limit) || value != floor(value)) {
        r->at = start;
        json_expected(r, "an integer");
    }
    return (long long)value;
}

static int word(json_reader *r, const char *text) {
    const size_t length = strlen(text);
    if (r->end - r->at < (ptrdiff_t)length || memcmp(r->at, text, length) != 0) return 0;
    r->at += length;
    return 1;
}

int json_boolean(json_reader *r) {
    peek(r);
    if (word(r, "true")) return 1;
    if (!word(r, "false")) json_expected(r, "true or false");
    return 0;
}

static void skip(json_reader *r, int depth) {
    const char c = peek(r);
    if (depth > 100) json_expected(r, "less nesting");
    if (c == '"') {
        free(json_string(r));
    } else if (c == '{' || c == '[') {
        long long members = 0;
        while (json_next(r, c, &members)) {
            if (c == '{') {
                free(json_string(r));
                json_colon(r);
            }
            skip(r, depth + 1);
        }
    } else if (!word(r, "true") && !word(r, "false") && !word(r, "null")) {
        json_number(r);
    }
}

void json_skip(json_reader *r) { skip(r, 0); }

void json_end(json_reader *r) {
    peek(r);
    if (r->at != r->end) json_expected(r, "the end of the file");
}
