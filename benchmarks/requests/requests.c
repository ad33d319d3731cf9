/* A load generator below every client library: connections that send one prepared request again and again.
 *
 *   requests HOST PORT CONNECTIONS SECONDS FRAMES
 *
 * FRAMES is a file of complete requests, each with its length in front; connection i sends request i modulo their number,
 * and sends it again as soon as it is answered. Prints one JSON object. A connection that is lost, or an answer that does
 * not come within 60 s, ends the run with status 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FRAMES = 10000, MAX_SAMPLES = 4000000, STALL_LIMIT_MS = 60000, EVENTS = 256 };

struct connection {
    int fd;
    const char *frame;
    size_t frame_size, sent, arrived, expected;
    unsigned char prefix[4];
    int64_t began_ns;
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "requests: %s: %s\n", what, why);
    exit(1);
}

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        die(path, strerror(errno));
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size);
    if (fread(bytes, 1, *size, file) != *size)
        die(path, "cannot be read");
    fclose(file);
    return bytes;
}

static void watch(int epoll, struct connection *c, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event))
        die("epoll", strerror(errno));
}

static void send_more(int epoll, struct connection *c) {
    while (c->sent < c->frame_size) {
        ssize_t n = send(c->fd, c->frame + c->sent, c->frame_size - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            watch(epoll, c, EPOLLIN | EPOLLOUT);
            return;
        }
        if (n < 0)
            die("send", strerror(errno));
        c->sent += (size_t)n;
    }
    watch(epoll, c, EPOLLIN);
}

static void begin(int epoll, struct connection *c) {
    c->sent = c->arrived = c->expected = 0;
    c->began_ns = now_ns();
    send_more(epoll, c);
}

/* 1 when the answer is whole. Answers come one at a time, so a read never takes bytes of a next one. */
static int receive_more(struct connection *c) {
    static char sink[1 << 18];
    for (;;) {
        ssize_t n;
        if (c->arrived < 4)
            n = recv(c->fd, c->prefix + c->arrived, 4 - c->arrived, MSG_DONTWAIT);
        else {
            size_t left = c->expected - c->arrived;
            n = recv(c->fd, sink, left < sizeof sink ? left : sizeof sink, MSG_DONTWAIT);
        }
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            die("receive", n ? strerror(errno) : "the broker closed the connection");
        c->arrived += (size_t)n;
        if (c->arrived == 4) {
            uint32_t size;
            memcpy(&size, c->prefix, 4);
            c->expected = 4 + (size_t)ntohl(size);
        }
        if (c->arrived >= 4 && c->arrived == c->expected)
            return 1;
    }
}

static int by_value(const void *x, const void *y) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    if (argc != 6)
        die("usage", "requests HOST PORT CONNECTIONS SECONDS FRAMES");
    int connections = atoi(argv[3]), frames = 0, epoll = epoll_create1(0);
    int64_t length_ns = atoll(argv[4]) * 1000000000;
    size_t size, at = 0;
    char *bytes = read_file(argv[5], &size);
    static const char *frame[MAX_FRAMES];
    static size_t frame_size[MAX_FRAMES];
    while (at + 4 <= size && frames < MAX_FRAMES) {
        uint32_t length;
        memcpy(&length, bytes + at, 4);
        frame[frames] = bytes + at;
        frame_size[frames] = 4 + (size_t)ntohl(length);
        at += frame_size[frames++];
    }
    if (!frames || at != size || connections < 1)
        die("usage", "at least one whole frame and one connection");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &address.sin_addr);
    struct connection *all = calloc((size_t)connections, sizeof *all);
    for (int i = 0, on = 1; i < connections; i++) {
        struct connection *c = &all[i];
        c->frame = frame[i % frames];
        c->frame_size = frame_size[i % frames];
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address))
            die("connect", strerror(errno));
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event))
            die("epoll", strerror(errno));
    }
    int64_t *taken_ns = malloc(sizeof *taken_ns * MAX_SAMPLES), answered = 0, start = now_ns();
    for (int i = 0; i < connections; i++)
        begin(epoll, &all[i]);
    for (int64_t now = start; now - start < length_ns; now = now_ns()) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(epoll, events, EVENTS, STALL_LIMIT_MS);
        if (ready <= 0)
            die("wait", "no answer");
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (c->sent < c->frame_size)
                send_more(epoll, c);
            else if (receive_more(c)) {
                if (answered < MAX_SAMPLES)
                    taken_ns[answered] = now_ns() - c->began_ns;
                answered++;
                begin(epoll, c);
            }
        }
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    int64_t samples = answered < MAX_SAMPLES ? answered : MAX_SAMPLES;
    if (!samples)
        die("run", "nothing was answered");
    qsort(taken_ns, (size_t)samples, sizeof *taken_ns, by_value);
    printf("{\"answered\": %lld, \"seconds\": %.6f, \"p50_ms\": %.4f, \"p99_ms\": %.4f}\n", (long long)answered, seconds,
           (double)taken_ns[samples / 2] / 1e6, (double)taken_ns[samples * 99 / 100] / 1e6);
    return 0;
}
