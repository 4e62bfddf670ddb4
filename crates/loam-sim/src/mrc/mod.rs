//! Miss-ratio curves: exact for LRU (Mattson), sampled (SHARDS).
