#include "model.h"

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

static sizes read_config(const char *folder, model *m) {
    char *path = join_path(folder, "config.json");
    size_t size;
    char *text = read_file(path, &size);
    json_reader r = json_open(path, text, size);
    sizes s = {0, 0, 0};
    int format = 0, given = 0;
    while (json_next(&r, '{')) {
        char *name = json_string(&r);
        json_colon(&r);
        if (!strcmp(name, "format")) {
            format = (int)json_integer(&r);
        } else if (!strcmp(name, "num_features")) {
            m->num_features = count(&r);
        } else if (!strcmp(name, "hidden")) {
            s.hidden = count(&r);
        } else if (!strcmp(name, "heads")) {
            s.heads = count(&r);
        } else if (!strcmp(name, "output_heads")) {
            s.output_heads = count(&r);
        } else if (!strcmp(name, "layers")) {
            m->num_layers = count(&r);
        } else if (!strcmp(name, "negative_slope")) {
            m->negative_slope = json_number(&r);
        } else if (!strcmp(name, "undirected")) {
            m->undirected = json_boolean(&r);
        } else if (!strcmp(name, "normalize")) {
            char *how = json_string(&r);
            m->normalize_rows = !strcmp(how, "row");
            free(how);
        } else if (!strcmp(name, "features")) {
            char *what = json_string(&r);
            given = !strcmp(what, "given");
            free(what);
        } else if (!strcmp(name, "class_names")) {
            while (json_next(&r, '[')) {
                m->class_names = enlarge(m->class_names, (size_t)m->num_classes + 1, sizeof *m->class_names);
                m->class_names[m->num_classes++] = json_string(&r);
            }
        } else {
            json_skip(&r);
        }
        free(name);
    }
    json_end(&r);
    if (format != 1 || !given || m->num_classes < 1 || !s.hidden || !s.heads || !s.output_heads || !m->num_layers) {
        fail("%s: expected a model of format 1 with features", path);
    }
    free(text);
    free(path);
    return s;
}

typedef struct tensor {
    char *name;
    int64_t elements;
    const float *data;
} tensor;

/* The tensors of a safetensors file: eight bytes of header size, a JSON header, the data. */
static tensor *read_tensors(const char *path, size_t *number) {
    size_t size, header = 0, i;
    char *text = read_file(path, &size);
    tensor *tensors = NULL;
    json_reader r;
    *number = 0;
    if (size < 8) fail("%s: expected a safetensors file, got %lld bytes", path, (long long)size);
    for (i = 8; i-- > 0;) header = header << 8 | (unsigned char)text[i];
    if (header > size - 8) fail("%s: expected a header of at most %lld bytes; the file is cut short", path, (long long)size - 8);
    r = json_open(path, text + 8, header);
    while (json_next(&r, '{')) {
        tensor t = {NULL, 1, NULL};
        long long begin = 0, end = 0;
        int is_float32 = 0;
        float *aligned;
        t.name = json_string(&r);
        json_colon(&r);
        if (!strcmp(t.name, "__metadata__")) {
            json_skip(&r);
            free(t.name);
            continue;
        }
        while (json_next(&r, '{')) {
            char *field = json_string(&r);
            json_colon(&r);
            if (!strcmp(field, "dtype")) {
                char *dtype = json_string(&r);
                is_float32 = !strcmp(dtype, "F32");
                free(dtype);
            } else if (!strcmp(field, "shape")) {
                while (json_next(&r, '[')) t.elements *= count(&r);
                if (t.elements < 0 || t.elements > (int64_t)(size / 4)) json_expected(&r, "a shape that fits the file before this");
            } else if (!strcmp(field, "data_offsets")) {
                if (json_next(&r, '[')) begin = json_integer(&r);
                if (json_next(&r, '[')) end = json_integer(&r);
                if (json_next(&r, '[')) json_expected(&r, "two offsets");
            } else {
                json_skip(&r);
            }
            free(field);
        }
        if (!is_float32 || begin < 0 || end - begin != 4 * t.elements || (size_t)end > size - 8 - header) {
            fail("%s: tensor %s: expected float32 values within the file", path, t.name);
        }
        aligned = allocate((size_t)t.elements, sizeof *aligned);
        memcpy(aligned, text + 8 + header + begin, (size_t)(end - begin));
        t.data = aligned;
        tensors = enlarge(tensors, *number + 1, sizeof *tensors);
        tensors[(*number)++] = t;
    }
    free(text);
    return tensors;
}

static const float *find(const char *path, const tensor *tensors, size_t number, int64_t layer_index, const char *name,
                         int64_t elements) {
    char wanted[64];
    size_t i;
    snprintf(wanted, sizeof wanted, "convs.%lld.%s", (long long)layer_index, name);
    for (i = 0; i < number; ++i) {
        if (strcmp(tensors[i].name, wanted) != 0) continue;
        if (tensors[i].elements != elements) {
            fail("%s: %s: expected %lld values, got %lld", path, wanted, (long long)elements, (long long)tensors[i].elements);
        }
        return tensors[i].data;
    }
    fail("%s: expected a tensor %s, got none", path, wanted);
    return NULL;
}

model load_model(const char *folder) {
    model m;
    sizes s;
    char *path = join_path(folder, "model.safetensors");
    tensor *tensors;
    size_t number;
    int64_t i, columns;
    memset(&m, 0, sizeof m);
    s = read_config(folder, &m);
    tensors = read_tensors(path, &number);
    m.layers = allocate((size_t)m.num_layers, sizeof *m.layers);
    columns = m.num_features;
    for (i = 0; i < m.num_layers; ++i) {
        const int last = i == m.num_layers - 1;
        layer *l = &m.layers[i];
        l->columns = columns;
        l->heads = last ? s.output_heads : s.heads;
        l->channels = last ? m.num_classes : s.hidden;
        columns = l->heads * l->channels;
        l->weight = find(path, tensors, number, i, "lin.weight", columns * l->columns);
        l->source_attention = find(path, tensors, number, i, "att_src", columns);
        l->target_attention = find(path, tensors, number, i, "att_dst", columns);
        l->bias = find(path, tensors, number, i, "bias", last ? l->channels : columns);
    }
    free(tensors);
    free(path);
    return m;
}
