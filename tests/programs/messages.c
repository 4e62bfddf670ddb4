// Processes that read one another's memory by process_vm_readv, as those of an MPI program do: messages PROCESSES MIB ROUNDS
// Each of them fills MIB at once, and in each round reads all of its neighbour's, 4 MiB at a time, and adds it to three times its own.
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES_MAX 16
#define WORDS 512

// In a file in memory, which is there after `exec`.
struct common {
    pthread_barrier_t barrier;
    struct {
        pid_t pid;
        uint64_t *own;
        uint64_t sum;
    } of[PROCESSES_MAX];
};

static void check(int is_right, const char *what) {
    if (!is_right) {
        perror(what);
        exit(1);
    }
}

static struct common *common(int fd) {
    void *at = mmap(NULL, sizeof(struct common), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(at != MAP_FAILED, "mmap");
    return at;
}

static uint64_t *map(size_t bytes) {
    uint64_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(at != MAP_FAILED, "mmap");
    return at;
}

static int be_one(struct common *all, int me, int processes, size_t bytes, int rounds) {
    uint64_t *own = map(bytes), *theirs = map(bytes), step = 1;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); // (where only parents may)
    all->of[me].pid = getpid();
    all->of[me].own = own;
    pthread_barrier_wait(&all->barrier);
    size_t pages = bytes / 4096;
    for (size_t page = 0; page < pages; page++)
        for (int word = 0; word < WORDS; word++)
            own[page * WORDS + word] = (uint64_t)me * 1000003 + page * 31 + word;
    int next = (me + 1) % processes;
    for (int round = 0; round < rounds; round++, step *= 4) {
        pthread_barrier_wait(&all->barrier);
        for (size_t at = 0, part = 4 << 20; at < bytes; at += part) {
            struct iovec here = {(char *)theirs + at, part}, there = {(char *)all->of[next].own + at, part};
            check(process_vm_readv(all->of[next].pid, &here, 1, &there, 1, 0) == (ssize_t)part, "process_vm_readv");
        }
        pthread_barrier_wait(&all->barrier);
        for (size_t i = 0; i < pages * WORDS; i++)
            own[i] = 3 * own[i] + theirs[i];
    }
    uint64_t sum = 0;
    for (size_t page = 0; page < pages; page++) {
        uint64_t *words = own + page * WORDS;
        for (int word = 0; word < WORDS; word++)
            if (words[word] != words[0] + word * step) {
                printf("process %d, page %zu, word %d: %" PRIu64 "\n", me, page, word, words[word]);
                return 1;
            }
        sum += words[0];
    }
    all->of[me].sum = sum;
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 6)
        return 2;
    int processes = atoi(argv[1]), rounds = atoi(argv[3]);
    size_t bytes = (size_t)atoi(argv[2]) << 20;
    if (argc == 6)
        return be_one(common(atoi(argv[4])), atoi(argv[5]), processes, bytes, rounds);
    int fd = memfd_create("common", 0);
    check(fd >= 0 && ftruncate(fd, sizeof(struct common)) == 0, "memfd_create");
    struct common *all = common(fd);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    check(processes <= PROCESSES_MAX && pthread_barrier_init(&all->barrier, &shared, processes) == 0, "barrier");
    for (int i = 0; i < processes; i++) {
        pid_t pid = fork();
        check(pid >= 0, "fork");
        if (pid == 0) {
            char file[12], number[12];
            snprintf(file, sizeof file, "%d", fd);
            snprintf(number, sizeof number, "%d", i);
            execl("/proc/self/exe", argv[0], argv[1], argv[2], argv[3], file, number, (char *)NULL);
            _exit(127);
        }
    }
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status != 0;
    for (int i = 0; i < processes; i++)
        printf("%" PRIu64 "\n", all->of[i].sum);
    return failed;
}
