/* traps: checks by itself that memory behaves as the kernel promises while something else takes pages away and
 * brings them back. Each trap of Loam's design is a subcommand; each verifies every byte that it wrote.
 *
 *     traps list
 *     traps all [--mib N] [--dir D] [--limit SECONDS]
 *     traps NAME [--mib N] [--dir D] [--limit SECONDS]
 *
 * Under a limit of a quarter of --mib all of a trap's data has to leave and come back. Prints `ok NAME`, or
 * `skip NAME: why`; ends with 1 and one line on stderr at the first wrong byte. */
#include "traps.h"
#include <getopt.h>

static const struct trap *const families[] = {traps_fork, traps_exec,   traps_map,    traps_mixed, traps_protect,
                                              traps_io,   traps_thread, traps_signal, traps_uffd};

/* The trap of that name, or NULL. */
static const struct trap *find(const char *name) {
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++)
        for (const struct trap *t = families[f]; t->name != NULL; t++)
            if (strcmp(t->name, name) == 0) return t;
    return NULL;
}

static void list(void) {
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++)
        for (const struct trap *t = families[f]; t->name != NULL; t++) printf("%-24s %s\n", t->name, t->what);
}

/* Every trap in a process of its own; goes on after a failure, so that one run tells all. */
static int all(void) {
    int failed = 0;
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++)
        for (const struct trap *t = families[f]; t->name != NULL; t++) {
            char *arguments[SELF_ARGUMENTS];
            self_arguments(arguments, t->name, 0, options.seed);
            pid_t pid = self_spawn(arguments);
            int status;
            pid_t got;
            do got = waitpid(pid, &status, 0);
            while (got < 0 && errno == EINTR);
            EXPECT(got == pid);
            bool good = t->ends_by_signal != 0
                            ? WIFSIGNALED(status) && WTERMSIG(status) == t->ends_by_signal
                            : WIFEXITED(status) && WEXITSTATUS(status) == 0;
            if (good && t->ends_by_signal != 0) printf("ok %s\n", t->name);
            if (!good) {
                failed++;
                printf("FAILED %s: %s %d\n", t->name, WIFSIGNALED(status) ? "signal" : "status",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            }
            fflush(stdout);
        }
    return failed == 0 ? 0 : 1;
}

static unsigned long number(const char *option, const char *text, unsigned long most) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno != 0 || *text == 0 || *end != 0 || value > most) {
        fprintf(stderr, "traps: %s: '%s' is not a number up to %lu\n", option, text, most);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv) {
    static const struct option longs[] = {{"mib", 1, 0, 'm'},   {"dir", 1, 0, 'd'},  {"limit", 1, 0, 'l'},
                                          {"stage", 1, 0, 's'}, {"seed", 1, 0, 'e'}, {0}};
    unsigned long mib = 128;
    options.dir = "/var/tmp";
    options.limit_s = 120;
    options.seed = 1;
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) switch (c) {
        case 'm': mib = number("--mib", optarg, 1 << 20); break;
        case 'd': options.dir = optarg; break;
        case 'l': options.limit_s = (unsigned)number("--limit", optarg, 3600); break;
        case 's': options.stage = (int)number("--stage", optarg, 1000); break;
        case 'e': options.seed = number("--seed", optarg, ~0ul); break;
        default: return 2;
        }
    if (optind + 1 != argc || mib < 16 || mib % 4 != 0) {
        fprintf(stderr, "usage: traps list | all | NAME [--mib N, a multiple of 4 from 16] [--dir D] [--limit S]\n");
        return 2;
    }
    options.name = argv[optind];
    options.data_bytes = mib / 2 * MIB;
    options.ballast_bytes = mib / 2 * MIB;
    if (strcmp(options.name, "list") == 0) return list(), 0;
    if (strcmp(options.name, "all") == 0) return all();
    const struct trap *trap = find(options.name);
    if (trap == NULL) {
        fprintf(stderr, "traps: no trap '%s'; 'traps list' has them\n", options.name);
        return 2;
    }
    alarm(options.limit_s);
    trap->run();
    printf("ok %s\n", trap->name);
    fflush(stdout);
    return 0;
}
