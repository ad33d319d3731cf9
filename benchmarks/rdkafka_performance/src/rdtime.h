/* The clock of rdkafka_performance.c: microseconds. */
#ifndef OTTLA_RDTIME_H
#define OTTLA_RDTIME_H
#include "rd.h"

typedef int64_t rd_ts_t;

static inline rd_ts_t rd_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (rd_ts_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}
#endif
