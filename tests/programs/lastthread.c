// The only thread ends by itself, without exit_group: as a filter of system calls ends a thread, or a program without a C library. With "child" it
// is a child that does so, and its parent says how it ended.
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        pid_t child = fork();
        if (child == 0)
            syscall(SYS_exit, 9);
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 1;
        printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        return 0;
    }
    syscall(SYS_exit, 7);
}
