// A child made by vfork that goes over its parent's memory again and again, and says where that is not what it was: vforkreads MIB GENERATIONS
// With two generations it is a child of that child that does.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void say(int to, const char *line) {
    if (write(to, line, strlen(line)) < 0)
        _exit(3);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    static long pages, generations;
    pages = atol(argv[1]) * 256;
    generations = atol(argv[2]);
    unsigned char *memory =
        mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    for (long page = 0; page < pages; page++)
        memory[page * PAGE] = (unsigned char)(1 + page % 251);
    pid_t pid = vfork();
    if (pid == 0 && generations == 2)
        pid = vfork();
    if (pid < 0)
        return 1;
    if (pid > 0)
        _exit(waitpid(pid, NULL, 0) == pid ? 0 : 1);
    for (long pass = 1; pass < 1000; pass++) {
        for (long page = 0; page < pages; page++)
            if (memory[page * PAGE] != 1 + page % 251) {
                say(2, "WRONG\n");
                _exit(1);
            }
        say(1, pass == 1 ? "pass 1\n" : "another pass\n");
    }
    _exit(0);
}
