/* A load generator on librdkafka: the client whose cost per record is low enough to show the broker's.
 *
 *   bench produce BOOTSTRAP TOPIC PARTITIONS COUNT SIZE_BYTES [name=value ...]
 *   bench consume BOOTSTRAP TOPIC PARTITIONS COUNT            [name=value ...]
 *   bench latency BOOTSTRAP TOPIC RATE_PER_S SECONDS SIZE_BYTES [name=value ...]
 *
 * name=value are librdkafka properties. Prints one JSON object. Every record produced is counted by its delivery report,
 * every failure ends the run with status 1, and every wait is bounded.
 */
#define _GNU_SOURCE
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 10000, STALL_LIMIT_S = 60, RING = 1 << 20, RUN = 32, NEAR = 4096 };

static int64_t delivered, failed;
static int64_t *ack_ns, ack_count, ack_capacity;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "bench: %s: %s\n", what, why);
    exit(1);
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
    (void)rk;
    (void)opaque;
    if (m->err) {
        if (failed++ == 0)
            fprintf(stderr, "bench: not delivered: %s\n", rd_kafka_err2str(m->err));
        return;
    }
    delivered++;
    if (ack_ns && ack_count < ack_capacity) {
        int64_t sent;
        memcpy(&sent, m->payload, sizeof sent);
        ack_ns[ack_count++] = now_ns() - sent;
    }
}

static rd_kafka_t *client(rd_kafka_type_t type, const char *bootstrap, int argc, char **argv) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    const char *defaults[][2] = {{"bootstrap.servers", bootstrap}, {"group.id", "bench"}, {"enable.auto.commit", "false"},
                                 {"queue.buffering.max.messages", "500000"}, {"queued.min.messages", "1000000"},
                                 {"auto.offset.reset", "error"}, {"log_level", "3"}};
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (rd_kafka_conf_set(conf, defaults[i][0], defaults[i][1], why, sizeof why) != RD_KAFKA_CONF_OK)
            die(defaults[i][0], why);
    for (int i = 0; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals)
            die(argv[i], "expected name=value");
        *equals = 0;
        if (rd_kafka_conf_set(conf, argv[i], equals + 1, why, sizeof why) != RD_KAFKA_CONF_OK)
            die(argv[i], why);
    }
    if (type == RD_KAFKA_PRODUCER)
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (!rk)
        die("client", why);
    return rk;
}

static uint32_t random_number(void) {
    static uint32_t state = 12345;
    state = state * 1664525u + 1013904223u;
    return state >> 16;
}

/* Letters, of which every second run of 32 has occurred shortly before: lz4 takes off a third, zstd two. */
static char *payload(size_t size) {
    char *bytes = malloc(size);
    for (size_t i = 0; i < size; i++) {
        size_t place = i % (2 * RUN);
        if (place == RUN && i + RUN <= size) {
            memcpy(bytes + i, bytes + i - (1 + random_number() % (i < NEAR ? i / RUN : NEAR / RUN)) * RUN, RUN);
            i += RUN - 1;
        } else {
            bytes[i] = (char)('A' + random_number() % 26);
        }
    }
    return bytes;
}

static void produce(char **a, int argc, char **argv) {
    int partitions = atoi(a[2]);
    int64_t count = atoll(a[3]), sent = 0, progress = 0, progress_ns;
    size_t size = (size_t)atoll(a[4]);
    rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, a[0], argc, argv);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, a[1], NULL);
    rd_kafka_message_t *batch = calloc(BATCH, sizeof *batch);
    char *bytes = payload(RING + size);
    size_t at = 0;
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(rk, 0, topic, &metadata, 10000))
        die("metadata", "no answer");
    rd_kafka_metadata_destroy(metadata);
    int64_t start = progress_ns = now_ns();
    int32_t partition = 0;
    while (sent < count) {
        int n = (int)(count - sent < BATCH ? count - sent : BATCH);
        for (int i = 0; i < n; i++) {
            batch[i].payload = bytes + at;
            batch[i].len = size;
            at = (at + size) % RING;
            batch[i].partition = partition;
            batch[i].err = 0;
            /* a few records to each partition in turn: what a sticky partitioner does */
            if ((sent + i) % 16 == 15 && ++partition == partitions)
                partition = 0;
        }
        int taken = rd_kafka_produce_batch(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_PARTITION, batch, n);
        if (taken < n) {
            /* the queue is full: send again those that were refused, in order */
            for (int i = 0; i < n; i++)
                while (batch[i].err) {
                    if (batch[i].err != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                        die("produce", rd_kafka_err2str(batch[i].err));
                    if (rd_kafka_produce(topic, batch[i].partition, 0, batch[i].payload, size, NULL, 0, NULL) == 0) {
                        batch[i].err = 0;
                        break;
                    }
                    rd_kafka_poll(rk, 100);
                    if (delivered != progress)
                        progress = delivered, progress_ns = now_ns();
                    else if (now_ns() - progress_ns > (int64_t)STALL_LIMIT_S * 1000000000)
                        die("produce", "stalled");
                }
        }
        sent += n;
        rd_kafka_poll(rk, 0);
    }
    while (delivered + failed < count && rd_kafka_flush(rk, 1000) && failed == 0)
        if (now_ns() - start > (int64_t)600 * 1000000000)
            die("flush", "not finished in 600 s");
    double seconds = (double)(now_ns() - start) / 1e9;
    printf("{\"records\": %lld, \"failed\": %lld, \"seconds\": %.6f}\n", (long long)delivered, (long long)failed, seconds);
    if (failed || delivered != count)
        exit(1);
}

static void consume(char **a, int argc, char **argv) {
    int partitions = atoi(a[2]);
    int64_t count = atoll(a[3]), got = 0, bytes = 0;
    rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, a[0], argc, argv);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, a[1], NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_message_t **batch = calloc(BATCH, sizeof *batch);
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(rk, 0, topic, &metadata, 10000))
        die("metadata", "no answer");
    rd_kafka_metadata_destroy(metadata);
    int64_t start = now_ns(), progress_ns = start, first = 0;
    /* from 0, where every log here begins: for RD_KAFKA_OFFSET_BEGINNING it asks partition by partition, which is all that
     * would be measured with 10,000 of them, and librdkafka 2.0 forgets some */
    for (int p = 0; p < partitions; p++)
        if (rd_kafka_consume_start_queue(topic, p, 0, queue))
            die("consume", "start failed");
    while (got < count) {
        ssize_t n = rd_kafka_consume_batch_queue(queue, 100, batch, BATCH);
        if (n > 0)
            progress_ns = now_ns();
        else if (now_ns() - progress_ns > (int64_t)STALL_LIMIT_S * 1000000000)
            die("consume", "stalled");
        for (ssize_t i = 0; i < n; i++) {
            if (batch[i]->err)
                die("consume", rd_kafka_message_errstr(batch[i]));
            got++;
            bytes += (int64_t)batch[i]->len;
            rd_kafka_message_destroy(batch[i]);
        }
        if (!first && got)
            first = now_ns();
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    printf("{\"records\": %lld, \"bytes\": %lld, \"seconds\": %.6f, \"first_s\": %.6f}\n", (long long)got, (long long)bytes,
           seconds, (double)(first - start) / 1e9);
    fflush(stdout);
    _Exit(0); /* tearing down thousands of toppars is not what is measured */
}

static int by_value(const void *x, const void *y) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

static void percentiles(const char *name, int64_t *values, int64_t n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    printf("\"%s_ms\": {\"p50\": %.3f, \"p99\": %.3f, \"p999\": %.3f, \"max\": %.3f}", name, values[n / 2] / 1e6,
           values[n * 99 / 100] / 1e6, values[n * 999 / 1000] / 1e6, values[n - 1] / 1e6);
}

/* Sending, delivery reports and consuming each have a thread that sleeps until there is work, as an application has. */
static rd_kafka_t *sender;
static rd_kafka_topic_t *incoming;
static int64_t total, *end_to_end;

static void *take_reports(void *unused) {
    while (delivered + failed < total)
        rd_kafka_poll(sender, 100);
    return unused;
}

static void *take_records(void *unused) {
    int64_t progress_ns = now_ns();
    for (int64_t got = 0; got < total;) {
        rd_kafka_message_t *m = rd_kafka_consume(incoming, 0, 1000);
        if (!m || m->err) {
            if (m && m->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
                die("consume", rd_kafka_message_errstr(m));
            if (now_ns() - progress_ns > (int64_t)STALL_LIMIT_S * 1000000000)
                die("latency", "records missing");
        } else {
            int64_t then;
            memcpy(&then, m->payload, sizeof then);
            progress_ns = now_ns();
            end_to_end[got++] = progress_ns - then;
        }
        if (m)
            rd_kafka_message_destroy(m);
    }
    return unused;
}

static void latency(char **a, int argc, char **argv) {
    int64_t rate = atoll(a[2]), count = rate * atoll(a[3]), warm = rate;
    size_t size = (size_t)atoll(a[4]) < 8 ? 8 : (size_t)atoll(a[4]);
    sender = client(RD_KAFKA_PRODUCER, a[0], argc, argv);
    rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, a[0], 0, NULL);
    rd_kafka_topic_t *outgoing = rd_kafka_topic_new(sender, a[1], NULL);
    incoming = rd_kafka_topic_new(consumer, a[1], NULL);
    char *bytes = payload(size);
    total = ack_capacity = count + warm;
    end_to_end = calloc((size_t)total, sizeof *end_to_end);
    ack_ns = calloc((size_t)total, sizeof *ack_ns);
    if (rd_kafka_consume_start(incoming, 0, RD_KAFKA_OFFSET_BEGINNING))
        die("consume", "start failed");
    pthread_t reports, records;
    pthread_create(&reports, NULL, take_reports, NULL);
    pthread_create(&records, NULL, take_records, NULL);
    int64_t start = now_ns();
    for (int64_t sent = 0; sent < total; sent++) {
        int64_t due = start + sent * 1000000000 / rate;
        struct timespec t = {due / 1000000000, due % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        int64_t now = now_ns();
        memcpy(bytes, &now, sizeof now);
        if (rd_kafka_produce(outgoing, 0, RD_KAFKA_MSG_F_COPY, bytes, size, NULL, 0, NULL))
            die("produce", rd_kafka_err2str(rd_kafka_last_error()));
    }
    pthread_join(reports, NULL);
    pthread_join(records, NULL);
    printf("{\"records\": %lld, ", (long long)count);
    percentiles("end_to_end", end_to_end + warm, count);
    printf(", ");
    percentiles("acknowledgement", ack_ns + warm, count);
    printf("}\n");
    fflush(stdout);
    _Exit(failed != 0);
}

int main(int argc, char **argv) {
    if (argc >= 7 && !strcmp(argv[1], "produce"))
        produce(argv + 2, argc - 7, argv + 7);
    else if (argc >= 6 && !strcmp(argv[1], "consume"))
        consume(argv + 2, argc - 6, argv + 6);
    else if (argc >= 7 && !strcmp(argv[1], "latency"))
        latency(argv + 2, argc - 7, argv + 7);
    else
        die("usage", "bench produce|consume|latency BOOTSTRAP TOPIC ... (see the head of bench.c)");
    return 0;
}
