// Several processes with one memory: together SHARED_MIB CHILDREN OWN_MIB
// All of them touch the same shared memory, and read what the parent had before it forked; then they wait until everybody has. At the end a child made by vfork lives for a while.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int is_right, const char *what) {
    if (!is_right) {
        perror(what);
        exit(1);
    }
}

static uint8_t *map(size_t bytes, int kind) {
    uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    check(at != MAP_FAILED, "mmap");
    for (size_t i = 0; i < bytes; i += 4096)
        at[i] = (uint8_t)(1 + i / 4096 % 251);
    return at;
}

static uint64_t sum(const uint8_t *at, size_t bytes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i += 4096)
        sum += at[i];
    return sum;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    size_t shared_bytes = (size_t)atoi(argv[1]) << 20, own_bytes = (size_t)atoi(argv[3]) << 20;
    int children = atoi(argv[2]), done[2], go[2];
    uint8_t *shared = map(shared_bytes, MAP_SHARED), *own = map(own_bytes, MAP_PRIVATE);
    check(pipe(done) == 0 && pipe(go) == 0, "pipe");
    for (int i = 0; i < children; i++) {
        pid_t pid = fork();
        check(pid >= 0, "fork");
        if (pid > 0)
            continue;
        close(go[1]);
        uint64_t sums[2] = {sum(shared, shared_bytes), sum(own, own_bytes)};
        check(write(done[1], sums, sizeof sums) == sizeof sums, "write");
        char byte;
        check(read(go[0], &byte, 1) == 0, "read");
        _exit(0);
    }
    uint64_t all = 0, sums[2];
    for (int i = 0; i < children; i++) {
        check(read(done[0], sums, sizeof sums) == sizeof sums, "read");
        all += sums[0] + sums[1];
    }
    usleep(500000);
    close(go[1]);
    while (wait(NULL) > 0)
        ;
    pid_t pid = vfork();
    check(pid >= 0, "vfork");
    if (pid == 0) {
        usleep(500000);
        _exit(0);
    }
    check(waitpid(pid, NULL, 0) == pid, "waitpid");
    printf("%lu\n", all + sum(own, own_bytes));
    return 0;
}
