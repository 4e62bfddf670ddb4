/* For programs that want to tell Loam about themselves. Nothing here is needed to run under `loam run`, and all of it is
 * harmless without: the function is weak, and there is nothing to link. */
#ifndef LOAM_H
#define LOAM_H

#ifdef __cplusplus
extern "C" {
#endif

/* Null without Loam: call loam_part_begins. */
void loam_part(unsigned part) __attribute__((weak));

/* A part of the program begins: a stretch with an access pattern of its own, such as a phase of each iteration. Numbers are the
 * program's, from 1 to 255; the same number is the same part. Loam keeps apart what it learns of page sizes in each. Any thread
 * may call it; it holds for the whole program. */
static inline void loam_part_begins(unsigned part) {
    if (loam_part) loam_part(part);
}

#ifdef __cplusplus
}
#endif
#endif
