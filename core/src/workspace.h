// What a sampler keeps from call to call.
#pragma once

#include "block_pool.h"
#include "relabel.h"
#include "sample_rows.h"

struct sage_attention_workspace {
    sage::RelabelTable table;
    sage::Row* rows;
    int64_t num_rows;
    int64_t* done;
    int64_t num_done;
    sage::RelabelTable* type_tables;  // one for each node type
    int32_t num_type_tables;
    sage::BlockPool* pool;
};
