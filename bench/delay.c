/* A cable that is long: what comes in at one end leaves the other so many microseconds later, in both directions, and no sooner than it would at so many megabytes a second.
 *
 *     delay LISTEN_PORT PORT MICROSECONDS [MEGABYTES_PER_SECOND]
 *
 * Connections to LISTEN_PORT of the loopback are carried to PORT there. Two threads a direction: one reads and notes when, the other waits and writes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024, CHUNKS = 256 };
static uint64_t delay_ns, ns_per_mib;

struct chunk {
    uint64_t came_ns;
    size_t bytes;
    char data[CHUNK];
};
/* One direction. */
struct way {
    int from, to;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t first, count;
    int over;
    struct chunk chunks[CHUNKS];
};

static void fail(const char *what) {
    perror(what);
    exit(1);
}
static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static void until(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) {}
}
static void *reads(void *argument) {
    struct way *way = argument;
    for (;;) {
        pthread_mutex_lock(&way->lock);
        while (way->count == CHUNKS && !way->over) pthread_cond_wait(&way->changed, &way->lock);
        struct chunk *chunk = &way->chunks[(way->first + way->count) % CHUNKS];
        int over = way->over;
        pthread_mutex_unlock(&way->lock);
        ssize_t bytes = over ? 0 : recv(way->from, chunk->data, CHUNK, 0);
        pthread_mutex_lock(&way->lock);
        if (bytes <= 0) {
            way->over = 1;
        } else {
            chunk->came_ns = now_ns();
            chunk->bytes = (size_t)bytes;
            way->count++;
        }
        pthread_cond_signal(&way->changed);
        pthread_mutex_unlock(&way->lock);
        if (bytes <= 0) return NULL;
    }
}
static void *writes(void *argument) {
    struct way *way = argument;
    uint64_t free_ns = 0;
    prctl(PR_SET_TIMERSLACK, 1ul);
    for (;;) {
        pthread_mutex_lock(&way->lock);
        while (way->count == 0 && !way->over) pthread_cond_wait(&way->changed, &way->lock);
        int empty = way->count == 0;
        struct chunk *chunk = &way->chunks[way->first];
        pthread_mutex_unlock(&way->lock);
        if (empty) break;
        uint64_t starts = chunk->came_ns > free_ns ? chunk->came_ns : free_ns;
        free_ns = starts + chunk->bytes * ns_per_mib / (1u << 20);
        until(free_ns + delay_ns);
        for (size_t done = 0; done < chunk->bytes;) {
            ssize_t sent = send(way->to, chunk->data + done, chunk->bytes - done, MSG_NOSIGNAL);
            if (sent <= 0) {
                pthread_mutex_lock(&way->lock);
                way->over = 1;
                pthread_cond_broadcast(&way->changed);
                pthread_mutex_unlock(&way->lock);
                shutdown(way->from, SHUT_RDWR);
                return NULL;
            }
            done += (size_t)sent;
        }
        pthread_mutex_lock(&way->lock);
        way->first = (way->first + 1) % CHUNKS, way->count--;
        pthread_cond_signal(&way->changed);
        pthread_mutex_unlock(&way->lock);
    }
    shutdown(way->to, SHUT_WR);
    return NULL;
}
static void carry(int from, int to) {
    struct way *way = calloc(1, sizeof *way);
    pthread_t threads[2];
    if (!way) fail("calloc");
    way->from = from, way->to = to;
    pthread_mutex_init(&way->lock, NULL);
    pthread_cond_init(&way->changed, NULL);
    if (pthread_create(&threads[0], NULL, reads, way) || pthread_create(&threads[1], NULL, writes, way)) fail("pthread_create");
    pthread_detach(threads[0]), pthread_detach(threads[1]);
}
int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "delay LISTEN_PORT PORT MICROSECONDS [MEGABYTES_PER_SECOND]\n"), 2;
    struct sockaddr_in near = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1])), .sin_addr = {htonl(INADDR_LOOPBACK)}}, far = near;
    far.sin_port = htons((uint16_t)atoi(argv[2]));
    delay_ns = (uint64_t)(atof(argv[3]) * 1000);
    ns_per_mib = argc > 4 ? (uint64_t)(1048.576e6 / atof(argv[4])) : 0;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&near, sizeof near) || listen(listener, 64)) fail("listen");
    for (;;) {
        int a = accept(listener, NULL, NULL), b = socket(AF_INET, SOCK_STREAM, 0);
        if (a < 0 || b < 0) fail("accept");
        if (connect(b, (void *)&far, sizeof far)) {
            close(a), close(b);
            continue;
        }
        setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), setsockopt(b, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        carry(a, b), carry(b, a);
    }
}
