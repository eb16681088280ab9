#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "json.h"

typedef struct sizes {
    int64_t hidden, heads, output_heads;
} sizes;

static int64_t count(json_reader *r) {
    const long long value = json_integer(r);
    if (value < 1 || value > 1 << 24) json_expected(r, "a number from 1 to 16777216 before this");
    return value;
}

static int is_word(json_reader *r, const char *word) {
    char *text = json_string(r);
    const int same = !strcmp(text, word);
    free(text);
    return same;
}

static void read_class_names(json_reader *r, model *m) {
    long long members = 0;
    while (json_next(r, '[', &members)) {
        m->class_names = enlarge(m->class_names, (size_t)m->num_classes + 1, sizeof *m->class_names);
        m->class_names[m->num_classes++] = json_string(r);
    }
}

static sizes read_config(const char *folder, model *m) {
    enum {
        kFormat,
        kModel,
        kNumFeatures,
        kClassNames,
        kHidden,
        kHeads,
        kOutputHeads,
        kLayers,
        kNegativeSlope,
        kNormalize,
        kUndirected,
        kFeatures,
        kNames
    };
    static const char *const names[kNames] = {"format",         "model",     "num_features", "class_names",
                                              "hidden",         "heads",     "output_heads", "layers",
                                              "negative_slope", "normalize", "undirected",   "features"};
    char *path = join_path(folder, "config.json");
    size_t size;
    char *text = read_file(path, &size);
    json_reader r = json_open(path, text, size);
    sizes s = {0, 0, 0};
    int there[kNames] = {0}, fits = 1, i;
    long long members = 0;
    while (json_next(&r, '{', &members)) {
        char *name = json_string(&r);
        for (i = 0; i < kNames && strcmp(name, names[i]) != 0;) ++i;
        if (i < kNames && there[i]++) fail("%s: %s is there twice", path, name);
        json_colon(&r);
        switch (i) {
            case kFormat: fits &= json_integer(&r) == 1; break;
            case kModel: fits &= is_word(&r, "gat"); break;
            case kNumFeatures: m->num_features = count(&r); break;
            case kClassNames: read_class_names(&r, m); break;
            case kHidden: s.hidden = count(&r); break;
            case kHeads: s.heads = count(&r); break;
            case kOutputHeads: s.output_heads = count(&r); break;
            case kLayers: m->num_layers = count(&r); break;
            case kNegativeSlope: m->negative_slope = json_number(&r); break;
            case kNormalize: m->normalize_rows = is_word(&r, "row"); break;
            case kUndirected: m->undirected = json_boolean(&r); break;
            case kFeatures: fits &= is_word(&r, "given"); break;
            default: json_skip(&r);
        }
        free(name);
    }
    json_end(&r);
    for (i = 0; i < kNames; ++i) {
        if (!there[i]) fail("%s: expected \"%s\", got none", path, names[i]);
    }
    if (!fits || m->num_classes < 1 || m->num_layers > 1000) {
        fail("%s: expected a model of format 1, \"gat\", with classes and features", path);
    }
    free(text);
    free(path);
    return s;
}

enum { kMostDimensions = 3 };

typedef struct tensor {
    char *name;
    int64_t shape[kMostDimensions], elements; /* trailing dimensions are 1 */
    float *data;
} tensor;

static void read_shape(json_reader *r, tensor *t, int64_t most) {
    long long members = 0;
    t->elements = t->shape[0] = t->shape[1] = t->shape[2] = 1; /* where a broken file gives it twice */
    while (json_next(r, '[', &members)) {
        const int64_t size = members > kMostDimensions ? 0 : count(r);
        if (size == 0 || size > most / t->elements) json_expected(r, "a shape of up to 3 sizes that fits the file");
        t->shape[members - 1] = size;
        t->elements *= size;
    }
}

static void read_offsets(json_reader *r, long long *begin, long long *end) {
    long long members = 0, offsets[2] = {0, 0};
    while (json_next(r, '[', &members)) {
        if (members > 2) json_expected(r, "two offsets");
        offsets[members - 1] = json_integer(r);
    }
    *begin = offsets[0];
    *end = offsets[1];
}

static tensor read_tensor(json_reader *r, char *name, const char *data, size_t bytes) {
    tensor t = {name, {1, 1, 1}, 1, NULL};
    long long begin = -1, end = -1, members = 0;
    int is_float32 = 0;
    int64_t i;
    while (json_next(r, '{', &members)) {
        char *field = json_string(r);
        json_colon(r);
        if (!strcmp(field, "dtype")) {
            is_float32 = is_word(r, "F32");
        } else if (!strcmp(field, "shape")) {
            read_shape(r, &t, (int64_t)(bytes / sizeof *t.data));
        } else if (!strcmp(field, "data_offsets")) {
            read_offsets(r, &begin, &end);
        } else {
            json_skip(r);
        }
        free(field);
    }
    if (!is_float32 || begin < 0 || end < begin || (size_t)end > bytes || end - begin != 4 * t.elements) {
        fail("%s: tensor %s: expected float32 values within the file", r->path, name);
    }
    t.data = allocate((size_t)t.elements, sizeof *t.data); /* in the file they may be anywhere, here they are aligned */
    memcpy(t.data, data + begin, (size_t)(end - begin));
    for (i = 0; i < t.elements; ++i) {
        if (!isfinite(t.data[i])) fail("%s: tensor %s: expected finite numbers, got NaN or infinity", r->path, name);
    }
    return t;
}

/* The tensors of a safetensors file: eight bytes of header size, a JSON header, the data. */
static tensor *read_tensors(const char *path, size_t *number) {
    size_t size, header = 0, i;
    char *text = read_file(path, &size);
    tensor *tensors = NULL;
    json_reader r;
    long long members = 0;
    *number = 0;
    if (size < 8) fail("%s: expected a safetensors file, got %lld bytes", path, (long long)size);
    for (i = 8; i-- > 0;) header = header << 8 | (unsigned char)text[i];
    if (header > size - 8)
        fail("%s: expected a header of at most %lld bytes; the file is cut short", path, (long long)size - 8);
    r = json_open(path, text + 8, header);
    while (json_next(&r, '{', &members)) {
        char *name = json_string(&r);
        json_colon(&r);
        if (!strcmp(name, "__metadata__")) {
            json_skip(&r);
            free(name);
            continue;
        }
        for (i = 0; i < *number; ++i) {
            if (!strcmp(tensors[i].name, name)) fail("%s: tensor %s is there twice", path, name);
        }
        tensors = enlarge(tensors, *number + 1, sizeof *tensors);
        tensors[(*number)++] = read_tensor(&r, name, text + 8 + header, size - 8 - header);
    }
    json_end(&r);
    free(text);
    return tensors;
}

typedef struct named_tensors {
    const char *path;
    const tensor *tensors;
    size_t number;
} named_tensors;

static const float *find(const named_tensors *all, int64_t layer_index, const char *name, int64_t rows, int64_t columns,
                         int64_t depth) {
    char wanted[64];
    size_t i;
    snprintf(wanted, sizeof wanted, "convs.%lld.%s", (long long)layer_index, name);
    for (i = 0; i < all->number; ++i) {
        const tensor *t = &all->tensors[i];
        if (strcmp(t->name, wanted) != 0) continue;
        if (t->shape[0] != rows || t->shape[1] != columns || t->shape[2] != depth) {
            fail("%s: %s: expected shape [%lld, %lld, %lld], got [%lld, %lld, %lld]", all->path, wanted,
                 (long long)rows, (long long)columns, (long long)depth, (long long)t->shape[0], (long long)t->shape[1],
                 (long long)t->shape[2]);
        }
        return t->data;
    }
    fail("%s: expected a tensor %s, got none", all->path, wanted);
    return NULL;
}

model load_model(const char *folder) {
    model m;
    sizes s;
    char *path = join_path(folder, "model.safetensors");
    named_tensors all = {path, NULL, 0};
    tensor *tensors;
    int64_t i, columns;
    memset(&m, 0, sizeof m);
    s = read_config(folder, &m);
    tensors = read_tensors(path, &all.number);
    all.tensors = tensors;
    m.layers = allocate((size_t)m.num_layers, sizeof *m.layers);
    columns = m.num_features;
    for (i = 0; i < m.num_layers; ++i) {
        const int last = i == m.num_layers - 1;
        layer *l = &m.layers[i];
        l->columns = columns;
        l->heads = last ? s.output_heads : s.heads;
        l->channels = last ? m.num_classes : s.hidden;
        columns = l->heads * l->channels; /* both below 2^32 */
        l->weight = find(&all, i, "lin.weight", columns, l->columns, 1);
        l->source_attention = find(&all, i, "att_src", 1, l->heads, l->channels);
        l->target_attention = find(&all, i, "att_dst", 1, l->heads, l->channels);
        l->bias = find(&all, i, "bias", last ? l->channels : columns, 1, 1);
    }
    free(tensors);
    free(path);
    return m;
}
