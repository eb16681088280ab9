/* What `sage-attention train` saved: config.json and model.safetensors. */
#ifndef MODEL_H
#define MODEL_H

#include <stdint.h>

typedef struct layer {
    int64_t columns, heads, channels;
    const float *weight;                     /* [heads * channels, columns] */
    const float *source_attention;           /* [heads, channels] */
    const float *target_attention;           /* [heads, channels] */
    const float *bias;                       /* [heads * channels]; the last layer: [channels] */
} layer;

typedef struct model {
    int64_t num_features, num_classes, num_layers;
    char **class_names;
    layer *layers;
    double negative_slope;
    int undirected, normalize_rows;
} model;

/* Ends the program with a message if a file is missing, damaged, or not of such a model. */
model load_model(const char *folder);

#endif
