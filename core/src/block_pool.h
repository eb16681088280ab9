// Memory of freed samples, kept for the next ones.
//
// A sample is some megabytes; fresh from the system they cost a page fault every 4 KiB, a fifth of the time of sampling.
// A pool belongs to a workspace and to the samples drawn with it, and goes with the last of them. Nobody ever waits for
// it: where another thread is at it, memory comes from and goes to the system.
#pragma once

#include "platform.h"

namespace sage {

constexpr int kPoolBlocks = 24;  // two samples, the one in use and the one before, over some node and edge types
constexpr size_t kSmallestBlock = size_t{1} << 16;  // what is smaller is the allocator's business
constexpr size_t kLargestBlock = size_t{1} << 26;   // one huge sample shall not hold its memory for ever

struct Block {
    void* data;
    size_t bytes;
};

struct BlockPool {
    volatile int64_t references;
    Mutex mutex;
    Block blocks[kPoolBlocks];
};

// One reference is the caller's. Null: out of memory.
inline BlockPool* block_pool_create() {
    auto* pool = static_cast<BlockPool*>(calloc(1, sizeof(BlockPool)));
    if (!pool) return nullptr;
    mutex_init(&pool->mutex);
    pool->references = 1;
    return pool;
}

inline void block_pool_release(BlockPool* pool) {
    if (!pool || atomic_fetch_add(&pool->references, -1) != 1) return;
    for (Block& block : pool->blocks) deallocate(block.data);
    free(pool);
}

// A block of at least `bytes`: the smallest that fits, unless it is much too large, or a new one. pool may be null; data
// is null if there is no memory.
inline Block block_take(BlockPool* pool, size_t bytes) {
    if (!pool || bytes < kSmallestBlock || bytes > kLargestBlock) return Block{allocate(bytes), bytes};
    Block taken = {nullptr, 0};
    if (mutex_try_lock(&pool->mutex)) {
        Block* best = nullptr;
        for (Block& block : pool->blocks) {
            const bool fits = block.bytes >= bytes && block.bytes / 4 <= bytes;
            if (fits && (!best || block.bytes < best->bytes)) best = &block;
        }
        if (best) {
            taken = *best;
            *best = Block{nullptr, 0};
        }
        mutex_unlock(&pool->mutex);
    }
    if (taken.data) return taken;
    bytes += bytes / 16;  // the next sample may be a little larger
    return Block{allocate(bytes), bytes};
}

// Keeps the block in place of the smallest one, or frees it.
inline void block_give(BlockPool* pool, Block block) {
    const bool fits = block.bytes >= kSmallestBlock && block.bytes <= kLargestBlock;
    if (pool && fits && mutex_try_lock(&pool->mutex)) {
        Block* smallest = &pool->blocks[0];
        for (Block& kept : pool->blocks) {
            if (kept.bytes < smallest->bytes) smallest = &kept;
        }
        if (smallest->bytes < block.bytes) {
            const Block out = *smallest;
            *smallest = block;
            block = out;
        }
        mutex_unlock(&pool->mutex);
    }
    deallocate(block.data);
}

// Makes `block`, which *p points to, hold at least `count` elements and keeps the first `used`; false: out of memory.
inline bool block_grow(BlockPool* pool, Block& block, int64_t** p, int64_t used, int64_t count) {
    if (count < 0 || static_cast<uint64_t>(count) > SIZE_MAX / 2 / sizeof(int64_t)) return false;
    const size_t bytes = static_cast<size_t>(count) * sizeof(int64_t);
    if (*p && bytes <= block.bytes) return true;
    const Block larger = block_take(pool, bytes);
    if (!larger.data) return false;
    if (used > 0) memcpy(larger.data, *p, static_cast<size_t>(used) * sizeof(int64_t));
    block_give(pool, block);
    block = larger;
    *p = static_cast<int64_t*>(larger.data);
    return true;
}

// Scratch out of a pool, for one scope.
class PooledBuffer {
  public:
    explicit PooledBuffer(BlockPool* pool) : pool_(pool) {}
    PooledBuffer(const PooledBuffer&) = delete;
    PooledBuffer& operator=(const PooledBuffer&) = delete;
    ~PooledBuffer() { block_give(pool_, block_); }
    // Null: out of memory.
    template <class T>
    T* take(int64_t count) {
        if (count < 0 || static_cast<uint64_t>(count) > SIZE_MAX / 2 / sizeof(T)) return nullptr;
        block_give(pool_, block_);
        block_ = block_take(pool_, static_cast<size_t>(count) * sizeof(T));
        return static_cast<T*>(block_.data);
    }

  private:
    BlockPool* pool_;
    Block block_ = {nullptr, 0};
};

}  // namespace sage
