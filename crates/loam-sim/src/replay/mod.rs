//! Replacement policies alone, at full speed: misses of a reference stream.
