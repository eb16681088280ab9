// From graph ids to positions in a sample, in order of first occurrence.
//
// Two tables with one interface. Dense: 8 bytes a node of the graph, one access. Hash: grows with the sample, for graphs
// so large that a dense table would not pay. Both are stamped with the number of the call ("epoch"), so that neither is
// ever cleared between calls: stamp = epoch << 40 | position.
#pragma once

#include "parallel.h"

namespace sage {

constexpr int kPositionBits = 40;  // 2^40 nodes in a sample would need 8 TiB
constexpr uint64_t kPositionMask = (uint64_t{1} << kPositionBits) - 1;
constexpr uint64_t kMaxEpoch = (uint64_t{1} << (64 - kPositionBits)) - 1;

// Up to this many nodes the table is dense in a workspace that lives on, and without one.
constexpr int64_t kDenseNodesKept = int64_t{1} << 24;
constexpr int64_t kDenseNodesOnce = int64_t{1} << 16;

constexpr int64_t kRelabelAhead = 24;  // edges between asking for a table entry and using it

struct HashSlot {
    int64_t id;
    uint64_t stamp;
};

// Plain data, all zero at first; release() frees it.
struct RelabelTable {
    uint64_t* stamps;
    int64_t num_stamps;
    HashSlot* slots;
    int64_t num_slots;  // a power of two
    uint64_t epoch;

    void release() {
        deallocate(stamps);
        deallocate(slots);
    }

    // Forgets everything.
    void next_epoch() {
        if (epoch == kMaxEpoch) {
            if (stamps) memset(stamps, 0, static_cast<size_t>(num_stamps) * sizeof(uint64_t));
            if (slots) memset(slots, 0, static_cast<size_t>(num_slots) * sizeof(HashSlot));
            epoch = 0;
        }
        ++epoch;
    }

    bool reserve_dense(int64_t num_ids) {
        if (num_ids <= num_stamps) return true;
        deallocate(stamps);
        num_stamps = 0;
        Buffer buffer;
        if (!buffer.reserve<uint64_t>(num_ids)) {
            stamps = nullptr;
            return false;
        }
        memset(buffer.data, 0, static_cast<size_t>(num_ids) * sizeof(uint64_t));
        stamps = static_cast<uint64_t*>(buffer.release());
        num_stamps = num_ids;
        return true;
    }

    bool reserve_hash(int64_t wanted) {
        if (wanted <= num_slots) return true;
        deallocate(slots);
        num_slots = 0;
        Buffer buffer;
        if (!buffer.reserve<HashSlot>(wanted)) {
            slots = nullptr;
            return false;
        }
        memset(buffer.data, 0, static_cast<size_t>(wanted) * sizeof(HashSlot));
        slots = static_cast<HashSlot*>(buffer.release());
        num_slots = wanted;
        return true;
    }
};

// Slots for `count` ids at a load of at most one half; 0 when that overflows.
inline int64_t hash_slots(int64_t count) {
    int64_t slots = 1024;
    while (slots / 2 < count) {
        if (slots > (INT64_MAX >> 1)) return 0;
        slots <<= 1;
    }
    return slots;
}

struct DenseRelabel {
    uint64_t* stamps;
    uint64_t tag;  // epoch << kPositionBits

    explicit DenseRelabel(const RelabelTable& table) : stamps(table.stamps), tag(table.epoch << kPositionBits) {}
    SAGE_INLINE void fetch(int64_t id) const { prefetch(stamps + id); }
    // Position of `id`, which becomes `next` if it has none yet. No branch: whether a node is new is a coin toss.
    SAGE_INLINE int64_t put(int64_t id, int64_t next) const {
        const uint64_t stamp = stamps[id];
        const uint64_t fresh = tag | static_cast<uint64_t>(next);
        const uint64_t now = (stamp ^ tag) >> kPositionBits ? fresh : stamp;
        stamps[id] = now;
        return static_cast<int64_t>(now & kPositionMask);
    }
};

struct HashRelabel {
    HashSlot* slots;
    uint64_t mask;
    uint64_t tag;

    // Uses the first `used` slots, a power of two: a small sample keeps to a small part of a table that once was large.
    HashRelabel(const RelabelTable& table, int64_t used)
        : slots(table.slots), mask(static_cast<uint64_t>(used) - 1), tag(table.epoch << kPositionBits) {}
    SAGE_INLINE uint64_t home(int64_t id) const {
        return ((static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u) >> 24) & mask;
    }
    SAGE_INLINE void fetch(int64_t id) const { prefetch(slots + home(id)); }
    SAGE_INLINE int64_t put(int64_t id, int64_t next) const {
        uint64_t s = home(id);
        for (;; s = (s + 1) & mask) {
            HashSlot& slot = slots[s];
            if ((slot.stamp ^ tag) >> kPositionBits) {
                slot.id = id;
                slot.stamp = tag | static_cast<uint64_t>(next);
                return next;
            }
            if (slot.id == id) return static_cast<int64_t>(slot.stamp & kPositionMask);
        }
    }
};

// Relabels the edges of a hop.
template <class Table>
struct Relabelling {
    Table table;
    int64_t* sources;
    int64_t* nodes;
    int64_t num_nodes;

    void relabel(int64_t begin, int64_t end) {
        int64_t count = num_nodes;
        const int64_t head = max(begin, end - kRelabelAhead);
        for (int64_t t = begin; t < end; ++t) {
            if (t < head) table.fetch(sources[t + kRelabelAhead]);
            const int64_t id = sources[t];
            const int64_t position = table.put(id, count);
            sources[t] = position;
            nodes[count] = id;  // stays only if it was new
            count += position == count;
        }
        num_nodes = count;
    }
};

// Does a second step of chunks in their order, while other threads are still at the first. Plain members are guarded by
// `mutex`, and so is what the second step touches.
struct InOrder {
    volatile int64_t* done;  // [num_chunks], all zero at first
    int64_t num_chunks;
    int64_t next_chunk = 0;
    Mutex mutex = {};

    InOrder(volatile int64_t* flags, int64_t count) : done(flags), num_chunks(count) { mutex_init(&mutex); }

    // Called after the first step of a chunk. Whoever holds the mutex calls second(chunk) for all that are ready; whoever
    // does not leaves it to the holder, who looks once more after letting go.
    template <class F>
    void finish(int64_t chunk, const F& second) {
        atomic_store(&done[chunk], 1);
        while (mutex_try_lock(&mutex)) {
            while (next_chunk < num_chunks && atomic_load(&done[next_chunk])) second(next_chunk++);
            const int64_t waiting = next_chunk;
            mutex_unlock(&mutex);
            if (waiting == num_chunks || !atomic_load(&done[waiting])) return;
        }
    }
};

}  // namespace sage
