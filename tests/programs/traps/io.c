/* System calls with buffers that are away: the kernel itself faults on them, or pins them for a device. */
#include "traps.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static void write_all(int fd, const unsigned char *at, size_t bytes) {
    while (bytes > 0) {
        ssize_t done = write(fd, at, bytes);
        if (done < 0 && errno == EINTR) continue;
        EXPECT(done > 0);
        at += done, bytes -= (size_t)done;
    }
}
static void read_all(int fd, unsigned char *at, size_t bytes) {
    while (bytes > 0) {
        ssize_t done = read(fd, at, bytes);
        if (done < 0 && errno == EINTR) continue;
        EXPECT(done > 0);
        at += done, bytes -= (size_t)done;
    }
}

static void plain(void) {
    unsigned char *from = area_new(options.data_bytes / 2), *to = area_new(options.data_bytes / 2);
    size_t bytes = options.data_bytes / 2;
    int fd = file_new(0);
    fill(from, bytes, 500);
    sweep();
    write_all(fd, from, bytes);
    EXPECT(lseek(fd, 0, SEEK_SET) == 0);
    read_all(fd, to, bytes); /* first into memory that was never touched, below into pages that are away */
    check("read", to, bytes, 500);
    fill(to, bytes, 501);
    sweep();
    EXPECT(lseek(fd, 0, SEEK_SET) == 0);
    read_all(fd, to, bytes);
    sweep();
    check("read over pages that were away", to, bytes, 500);
}

static void vectors(void) {
    enum { PARTS = 64 };
    unsigned char *from = area_new(options.data_bytes / 2), *to = area_new(options.data_bytes / 2);
    size_t bytes = options.data_bytes / 2, part = bytes / PARTS;
    int fd = file_new(0);
    struct iovec out[PARTS], in[PARTS];
    for (size_t i = 0; i < PARTS; i++) {
        size_t other = (i * 29 + 7) % PARTS; /* another order, the same for both */
        out[i] = (struct iovec){from + other * part, part};
        in[i] = (struct iovec){to + other * part, part};
    }
    fill(from, bytes, 510);
    sweep();
    for (size_t i = 0; i < PARTS; i += 8) EXPECT(writev(fd, out + i, 8) == (ssize_t)(8 * part));
    EXPECT(lseek(fd, 0, SEEK_SET) == 0);
    for (size_t i = 0; i < PARTS; i += 8) EXPECT(readv(fd, in + i, 8) == (ssize_t)(8 * part));
    sweep();
    check("readv", to, bytes, 510);
}

static int ends[2];
struct buffer { unsigned char *at; size_t bytes; };
static void *pipe_writer(void *argument) {
    struct buffer *buffer = argument;
    write_all(ends[1], buffer->at, buffer->bytes);
    return NULL;
}
static void pipes(void) {
    size_t bytes = options.data_bytes / 2;
    struct buffer from = {area_new(bytes), bytes};
    unsigned char *to = area_new(bytes);
    fill(from.at, bytes, 520);
    fill(to, bytes, 521);
    sweep();
    EXPECT(pipe(ends) == 0);
    pthread_t thread = thread_start(pipe_writer, &from);
    read_all(ends[0], to, bytes);
    thread_join(thread);
    sweep();
    check("through a pipe", to, bytes, 520);
}

static void other_process_body(void *argument) {
    struct buffer *buffer = argument;
    unsigned char *copy = area_new(4 * MIB);
    for (size_t at = 0; at < buffer->bytes; at += 4 * MIB) {
        struct iovec here = {copy, 4 * MIB}, there = {buffer->at + at, 4 * MIB};
        ssize_t got = process_vm_readv(getppid(), &here, 1, &there, 1, 0);
        if (got < 0 && errno == EPERM) return;
        EXPECT(got == (ssize_t)(4 * MIB));
        check_at("read by another process", copy, 4 * MIB, 530, at);
    }
}
static void other_process(void) {
    struct buffer buffer = {area_new(options.data_bytes), options.data_bytes};
    fill(buffer.at, buffer.bytes, 530);
    pid_t pid = child_start(other_process_body, &buffer);
    sweep();
    child_join(pid);
    check("read by a child meanwhile", buffer.at, buffer.bytes, 530);
}

/* A ring with one request at a time, by the system calls themselves. */
struct ring {
    int fd;
    unsigned *tail, *mask, *array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *requests;
    struct io_uring_cqe *answers;
};
static void ring_open(struct ring *ring) {
    struct io_uring_params params = {0};
    ring->fd = (int)syscall(SYS_io_uring_setup, 8, &params);
    if (ring->fd < 0 && (errno == ENOSYS || errno == EPERM)) skip("io_uring is not permitted here");
    EXPECT(ring->fd >= 0);
    size_t sq = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t cq = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    unsigned char *sq_at = mmap(NULL, sq, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
    unsigned char *cq_at = mmap(NULL, cq, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_CQ_RING);
    ring->requests = mmap(NULL, params.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED,
                          ring->fd, IORING_OFF_SQES);
    EXPECT(sq_at != MAP_FAILED && cq_at != MAP_FAILED && ring->requests != MAP_FAILED);
    ring->tail = (unsigned *)(sq_at + params.sq_off.tail), ring->mask = (unsigned *)(sq_at + params.sq_off.ring_mask);
    ring->array = (unsigned *)(sq_at + params.sq_off.array);
    ring->cq_head = (unsigned *)(cq_at + params.cq_off.head), ring->cq_tail = (unsigned *)(cq_at + params.cq_off.tail);
    ring->cq_mask = (unsigned *)(cq_at + params.cq_off.ring_mask);
    ring->answers = (struct io_uring_cqe *)(cq_at + params.cq_off.cqes);
}
static void ring_do(struct ring *ring, int op, int fd, unsigned char *at, size_t bytes, size_t offset, bool fixed) {
    unsigned tail = *ring->tail, slot = tail & *ring->mask;
    struct io_uring_sqe request = {.opcode = (unsigned char)op, .fd = fd, .addr = (uint64_t)at, .len = (unsigned)bytes,
                                   .off = offset, .buf_index = 0, .flags = fixed ? 0 : IOSQE_ASYNC};
    ring->requests[slot] = request;
    ring->array[slot] = slot;
    __atomic_store_n(ring->tail, tail + 1, __ATOMIC_RELEASE);
    long done;
    do done = syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    while (done < 0 && errno == EINTR);
    EXPECT(done == 1);
    unsigned head = *ring->cq_head;
    EXPECT(head != __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE));
    int result = ring->answers[head & *ring->cq_mask].res;
    __atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
    if (result != (int)bytes) fail(false, "io_uring operation %d: expected %zu bytes, got %d", op, bytes, result);
}
static void uring(void) {
    size_t bytes = options.data_bytes / 2, block = 256 * 1024;
    unsigned char *from = area_new(bytes), *to = area_new(bytes);
    struct ring ring;
    ring_open(&ring);
    int fd = file_new(0);
    fill(from, bytes, 540);
    fill(to, bytes, 541);
    sweep();
    for (size_t at = 0; at < bytes; at += block) ring_do(&ring, IORING_OP_WRITE, fd, from + at, block, at, false);
    for (size_t at = 0; at < bytes; at += block) ring_do(&ring, IORING_OP_READ, fd, to + at, block, at, false);
    sweep();
    check("read by io_uring", to, bytes, 540);
    /* Registered buffers are pinned for as long as they are registered: they must not be taken away. */
    struct iovec pinned = {to, 4 * MIB};
    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &pinned, 1) == 0) {
        fill(to, 4 * MIB, 542);
        sweep();
        for (size_t at = 0; at < 4 * MIB; at += block) {
            ring_do(&ring, IORING_OP_READ_FIXED, fd, to + at, block, at, true);
            if (at % MIB == 0) sweep();
            check_at("read into a registered buffer", to + at, block, 540, at);
        }
    }
    check("read by io_uring, at the end", to, bytes, 540);
}

static volatile bool stop;
static void *pressure(void *argument) {
    while (!stop) sweep();
    return argument;
}
/* The device writes into pinned frames while everything around is pushed out. */
static void direct(void) {
    size_t bytes = options.data_bytes / 2, block = 512 * 1024;
    unsigned char *to = area_new(bytes), *from = area_new(bytes);
    int fd = file_new(O_DIRECT);
    fill(from, bytes, 550);
    for (size_t at = 0; at < bytes; at += block) {
        ssize_t done = pwrite(fd, from + at, block, (off_t)at);
        if (done < 0 && errno == EINVAL) skip("the file system of --dir has no O_DIRECT");
        EXPECT(done == (ssize_t)block);
    }
    pthread_t thread = thread_start(pressure, NULL);
    for (uint64_t round = 0; round < 2; round++) {
        fill(to, bytes, 551 + round);
        for (size_t at = 0; at < bytes; at += block) EXPECT(pread(fd, to + at, block, (off_t)at) == (ssize_t)block);
        check("read by O_DIRECT", to, bytes, 550);
    }
    stop = true;
    thread_join(thread);
    check("source of O_DIRECT writes", from, bytes, 550);
}

const struct trap traps_io[] = {
    {"read_write", plain, "read and write of a file", 0},
    {"readv_writev", vectors, "readv and writev", 0},
    {"pipes", pipes, "a pipe from and into pages that are away", 0},
    {"process_vm", other_process, "a child reads its parent's memory by process_vm_readv", 0},
    {"io_uring", uring, "io_uring, with and without registered buffers", 0},
    {"o_direct", direct, "O_DIRECT while everything is pushed out", 0},
    {NULL, NULL, NULL, 0},
};
