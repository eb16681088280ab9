#include "tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "json.h"

typedef struct row {
    int64_t id, first, count;
} row;

static int by_id(const void *a, const void *b) {
    const int64_t x = ((const row *)a)->id, y = ((const row *)b)->id;
    return (x > y) - (x < y);
}
static int by_value(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Reads an integer of 0 or more; returns 0 where the text is none, or one that 64 bits do not hold. "07" is a word. */
static int integer(const char *text, int64_t *value) {
    char *end;
    text += strspn(text, " ");
    if (*text < '0' || *text > '9' || (*text == '0' && text[1])) return 0;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && *end == 0;
}

features read_features(const char *path, int64_t num_features) {
    size_t size, capacity_rows = 1024, capacity = 1 << 16;
    char *text = read_file(path, &size);
    json_reader r = json_open(path, text, size);
    row *rows = allocate(capacity_rows, sizeof *rows);
    int32_t *all = allocate(capacity, sizeof *all);
    int64_t number = 0, entries = 0, i;
    long long members = 0;
    features f;
    while (json_next(&r, '{', &members)) {
        char *id = json_string(&r);
        long long indices = 0;
        row own;
        own.first = entries;
        if (!integer(id, &own.id)) fail("%s: expected integers of 0 or more as ids, got \"%s\"", path, id);
        free(id);
        json_colon(&r);
        while (json_next(&r, '[', &indices)) {
            const long long index = json_integer(&r);
            if (index < 0 || index >= num_features) {
                fail("%s, node %lld: expected features below %lld, got %lld", path, (long long)own.id,
                     (long long)num_features, index);
            }
            if ((size_t)entries == capacity) all = enlarge(all, capacity *= 2, sizeof *all);
            all[entries++] = (int32_t)index;
        }
        own.count = entries - own.first;
        if ((size_t)number == capacity_rows) rows = enlarge(rows, capacity_rows *= 2, sizeof *rows);
        rows[number++] = own;
    }
    json_end(&r);
    if (number == 0 || number > INT32_MAX)
        fail("%s: expected from 1 to 2147483647 nodes, got %lld", path, (long long)number);
    qsort(rows, (size_t)number, sizeof *rows, by_id);

    f.num_nodes = number;
    f.ids = allocate((size_t)number, sizeof *f.ids);
    f.indptr = allocate((size_t)number + 1, sizeof *f.indptr);
    f.indices = allocate((size_t)entries, sizeof *f.indices);
    f.indptr[0] = 0;
    for (i = 0; i < number; ++i) {
        int32_t *to = f.indices + f.indptr[i];
        int64_t k, kept = 0;
        if (i > 0 && rows[i].id == rows[i - 1].id) fail("%s: node %lld is there twice", path, (long long)rows[i].id);
        memcpy(to, all + rows[i].first, (size_t)rows[i].count * sizeof *to);
        qsort(to, (size_t)rows[i].count, sizeof *to, by_value);
        for (k = 0; k < rows[i].count; ++k) {
            if (k == 0 || to[k] != to[kept - 1]) to[kept++] = to[k];
        }
        f.ids[i] = rows[i].id;
        f.indptr[i + 1] = f.indptr[i] + kept;
    }
    free(text);
    free(rows);
    free(all);
    return f;
}

static int64_t position(const features *nodes, int64_t id) {
    int64_t low = 0, high = nodes->num_nodes;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (nodes->ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < nodes->num_nodes && nodes->ids[low] == id ? low : -1;
}

/* source * 2^32 + target */
static int by_pair(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Reads "source,target" of a line; 0 where it is not two integers. */
static int two_integers(char *line, int64_t *source, int64_t *target) {
    char *comma = strpbrk(line, ",;\t");
    if (!comma) return 0;
    *comma = 0;
    if (integer(line, source) && integer(comma + 1, target)) return 1;
    *comma = ',';
    return 0;
}

edges read_edges(const char *path, const features *nodes, int undirected) {
    size_t size, capacity = 1 << 16;
    char *text = read_file(path, &size), *line = text;
    int64_t *pairs = allocate(capacity, sizeof *pairs), number = 0, kept = 0, i;
    long long line_number = 0;
    edges e;
    /* UTF-16 has them, and what a power cut left of a file. */
    if (memchr(text, 0, size)) fail("%s: expected UTF-8 text, got zero bytes; save it as \"CSV UTF-8\"", path);
    if (size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) line += 3;
    while (line < text + size) {
        char *end = strpbrk(line, "\r\n"), *next = end ? end + 1 : text + size;
        int64_t ends[2], k;
        ++line_number;
        if (end && end[0] == '\r' && end[1] == '\n') ++next;
        if (end) *end = 0;
        if (*line) {
            if (!two_integers(line, &ends[0], &ends[1])) {
                if (line_number > 1)
                    fail("%s, line %lld: expected two integers of 0 or more, got \"%.100s\"", path, line_number, line);
            } else {
                for (k = 0; k < 2; ++k) {
                    const int64_t at = position(nodes, ends[k]);
                    if (at < 0) fail("%s, line %lld: node %lld has no features", path, line_number, (long long)ends[k]);
                    ends[k] = at;
                }
                if ((size_t)number + 2 > capacity) pairs = enlarge(pairs, capacity *= 2, sizeof *pairs);
                if (ends[0] != ends[1]) {
                    pairs[number++] = ends[0] << 32 | ends[1];
                    if (undirected) pairs[number++] = ends[1] << 32 | ends[0];
                }
            }
        }
        line = next;
    }
    if (number == 0) fail("%s: expected edges, got none", path);
    if (undirected) {
        qsort(pairs, (size_t)number, sizeof *pairs, by_pair);
        for (i = 0; i < number; ++i) {
            if (i == 0 || pairs[i] != pairs[kept - 1]) pairs[kept++] = pairs[i];
        }
        number = kept;
    }
    e.num_edges = number;
    e.sources = allocate((size_t)number, sizeof *e.sources);
    e.targets = allocate((size_t)number, sizeof *e.targets);
    for (i = 0; i < number; ++i) {
        e.sources[i] = (int32_t)(pairs[i] >> 32);
        e.targets[i] = (int32_t)(pairs[i] & 0xffffffff);
    }
    free(pairs);
    free(text);
    return e;
}
