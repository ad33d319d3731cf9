/* What rdkafka_performance.c takes from librdkafka's private headers, which no package has. */
#ifndef OTTLA_RD_H
#define OTTLA_RD_H
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define RD_MIN(a, b) ((a) < (b) ? (a) : (b))
#define RD_MAX(a, b) ((a) > (b) ? (a) : (b))
#define rd_snprintf snprintf
#endif
