"""The C text that every exported library contains: threads, memory, and loops over chunks of work.

`NAME` stands for the name of the library, and `UPPER` for the same in capitals. The tables and
sizes of the plan (see `c_writer`) come between `HEAD` and `BODY`; the function that runs the steps
comes last.
"""

# Types and functions that the tables need.
HEAD = """\
#define _GNU_SOURCE
#include "NAME.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A kernel computes units of work from `low` to `high` - 1. Its arguments are words: numbers, and
 * pairs of a buffer's number and an offset in bytes. */
typedef void kernel(int64_t low, int64_t high, const int64_t *words, void *const *buffers);

/* A launch is a kernel with its arguments, and how many units one thread computes at a time. */
typedef struct {
    kernel *run;
    const int64_t *words;
    int64_t extent, grain, chunks;
} launch;

/* Kernels with long loops call this function. */
__attribute__((visibility("hidden"))) int64_t CHECK(void) { return 0; }

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* a / b, rounded down; a divisor of 0 counts as 1. */
static inline int64_t rounded(int64_t a, int64_t b) {
    if (!b) b = 1;
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}
"""

BODY = """\
enum { ALIGNMENT = 64, SPINS = 2000, MOST_THREADS = 1024, STACK = 8 << 20 };

/* A batch size that a context is not prepared for. */
#define NO_BATCH INT64_MIN

struct NAME_context {
    int64_t batch;
    int64_t words[WORDS + 1];
    launch launches[LAUNCHES + 1];
    void *buffers[SLOTS + 1];
    int64_t places[ROOMS + 1];
    NUMBER numbers[NUMBERS + 1];
    char *arena;
    int64_t arena_bytes;
    atomic_flag busy;

    /* The threads. A ticket is a generation in its upper half and the next chunk in its lower half;
     * a thread that increments the ticket computes that chunk of the job. */
    int workers;
    pthread_t *threads;
    _Atomic uint64_t ticket;
    _Atomic(const launch *) job;
    _Atomic int64_t job_chunks;
    _Atomic int64_t done;
    atomic_int sleeping, ending;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

typedef struct NAME_context context;

#define CLOSED 0xffffffffu

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void run_chunk(const launch *x, int64_t chunk, void *const *buffers) {
    while (chunk >= x->chunks) chunk -= x++->chunks;
    int64_t low = chunk * x->grain;
    int64_t high = low + x->grain < x->extent ? low + x->grain : x->extent;
    x->run(low, high, x->words, buffers);
}

/* Compute a chunk of the current job; 0 if none is left. */
static int help(context *c) {
    uint64_t ticket = atomic_load_explicit(&c->ticket, memory_order_acquire);
    for (;;) {
        uint32_t chunk = (uint32_t)ticket;
        if (chunk == CLOSED) return 0;
        const launch *job = atomic_load_explicit(&c->job, memory_order_relaxed);
        int64_t chunks = atomic_load_explicit(&c->job_chunks, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if (chunk >= chunks) {
            uint64_t now = atomic_load_explicit(&c->ticket, memory_order_acquire);
            if (now == ticket) return 0;
            ticket = now;
            continue;
        }
        if (atomic_compare_exchange_weak_explicit(&c->ticket, &ticket, ticket + 1,
                                                  memory_order_acq_rel, memory_order_acquire)) {
            run_chunk(job, chunk, c->buffers);
            atomic_fetch_add_explicit(&c->done, 1, memory_order_release);
            return 1;
        }
    }
}

static void *work(void *given) {
    context *c = given;
    while (!atomic_load(&c->ending)) {
        int spins = 0;
        while (help(c)) {}
        uint64_t seen = atomic_load(&c->ticket);
        while (atomic_load(&c->ticket) == seen && !atomic_load(&c->ending)) {
            if (spins++ < SPINS) {
                pause_briefly();
                continue;
            }
            pthread_mutex_lock(&c->lock);
            atomic_fetch_add(&c->sleeping, 1);
            while (atomic_load(&c->ticket) == seen && !atomic_load(&c->ending))
                pthread_cond_wait(&c->wake, &c->lock);
            atomic_fetch_sub(&c->sleeping, 1);
            pthread_mutex_unlock(&c->lock);
        }
    }
    return NULL;
}

static void wake_all(context *c) {
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

/* Run launches that do not depend on each other, with all threads if that is worth it. */
static void region(context *c, int first, int count, int parallel) {
    const launch *x = c->launches + first;
    int64_t chunks = 0;
    for (int k = 0; k < count; k++) chunks += x[k].chunks;
    if (!parallel || !c->workers || chunks < 2 || chunks >= CLOSED) {
        for (int k = 0; k < count; k++)
            for (int64_t i = 0; i < x[k].chunks; i++) run_chunk(x + k, i, c->buffers);
        return;
    }
    uint64_t generation = (atomic_load(&c->ticket) >> 32) + 1;
    atomic_store(&c->job, x);
    atomic_store(&c->job_chunks, chunks);
    atomic_store(&c->done, 0);
    atomic_store(&c->ticket, generation << 32);
    if (atomic_load(&c->sleeping)) wake_all(c);
    while (help(c)) {}
    for (int spins = 0; atomic_load_explicit(&c->done, memory_order_acquire) < chunks; spins++) {
        if (spins < SPINS) pause_briefly();
        else sched_yield();
    }
    atomic_store(&c->ticket, generation << 32 | CLOSED);
    atomic_thread_fence(memory_order_seq_cst);
}

static inline void exchange(void **a, void **b) {
    void *held = *a;
    *a = *b;
    *b = held;
}

/* The number of a branch, from an index that may be out of range. */
static inline int selected(const void *index, int last) {
    int32_t i;
    memcpy(&i, index, sizeof i);
    return i < 0 ? 0 : i > last ? last : i;
}

static inline int64_t padded(int64_t bytes) {
    return ((bytes < 1 ? 1 : bytes) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int prepare(context *c, int64_t n) {
    if (c->batch == n) return UPPER_OK;
    c->batch = NO_BATCH;
    memcpy(c->words, fixed_words, sizeof fixed_words);
    for (int k = 0; k < LAUNCHES; k++) {
        launch *x = c->launches + k;
        x->run = kernels[fixed_launches[k].kernel];
        x->words = c->words + fixed_launches[k].word;
        x->extent = fixed_launches[k].extent;
        x->grain = fixed_launches[k].grain;
    }
    int64_t bytes[ROOMS + 1];
    for (int k = 0; k < ROOMS; k++) bytes[k] = rooms[k].bytes;
    int64_t sizes[SIZES + 1];
    set_sizes(sizes, n);
    for (const sized *x = sized_words; x->size >= 0; x++) c->words[x->at] = sizes[x->size];
    for (const sized *x = sized_extents; x->size >= 0; x++)
        c->launches[x->at].extent = sizes[x->size];
    for (const sized *x = sized_grains; x->size >= 0; x++)
        c->launches[x->at].grain = larger(sizes[x->size], 1);
    for (const sized *x = sized_rooms; x->size >= 0; x++) bytes[x->at] = sizes[x->size];
    for (int k = 0; k < LAUNCHES; k++) {
        launch *x = c->launches + k;
        x->chunks = x->extent > 0 ? (x->extent - 1) / x->grain + 1 : 0;
    }
    /* Place each room above those below it. Rooms of a loop's body are in the room of the body. */
    int64_t ends[ROOMS + 1], inner[ROOMS + 1], total = 0;
    memset(inner, 0, sizeof inner);
    for (int k = 0, next = 0; k < ROOMS; k++) {
        int64_t place = 0;
        for (int j = 0; j < rooms[k].below; j++, next++)
            if (ends[below[next]] > place) place = ends[below[next]];
        c->places[k] = place;
        ends[k] = place + padded(rooms[k].slot < 0 ? inner[k] : bytes[k]);
        int64_t *height = rooms[k].body < 0 ? &total : &inner[rooms[k].body];
        if (ends[k] > *height) *height = ends[k];
    }
    if (total > c->arena_bytes) {
        free(c->arena);
        c->arena_bytes = 0;
        void *made = NULL;
        if (posix_memalign(&made, ALIGNMENT, (size_t)total)) made = NULL;
        c->arena = made;
        if (!made) return UPPER_ERROR_MEMORY;
        c->arena_bytes = total;
    }
    for (int k = ROOMS - 1; k >= 0; k--) {
        if (rooms[k].body >= 0) c->places[k] += c->places[rooms[k].body];
        if (rooms[k].slot >= 0) c->buffers[rooms[k].slot] = c->arena + c->places[k];
    }
    set_numbers(c->numbers, n);
    c->batch = n;
    return UPPER_OK;
}

static int available_processors(void) {
#if defined(__linux__)
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int)count : 1;
}

void NAME_destroy(context *c) {
    if (!c) return;
    atomic_store(&c->ending, 1);
    wake_all(c);
    for (int k = 0; k < c->workers; k++) pthread_join(c->threads[k], NULL);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    free(c->threads);
    free(c->arena);
    free(c);
}

static int has_instructions(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return FEATURES;
#else
    return 1;
#endif
}

int NAME_create(context **made, int threads) {
    if (!made) return UPPER_ERROR_NULL;
    *made = NULL;
    if (threads < 0 || threads > MOST_THREADS) return UPPER_ERROR_THREADS;
    if (!has_instructions()) return UPPER_ERROR_PROCESSOR;
    if (!threads) threads = available_processors();
    context *c = calloc(1, sizeof *c);
    if (!c) return UPPER_ERROR_MEMORY;
    c->threads = calloc((size_t)threads, sizeof *c->threads);
    if (!c->threads) {
        free(c);
        return UPPER_ERROR_MEMORY;
    }
    c->batch = NO_BATCH;
    atomic_store(&c->ticket, CLOSED);
    atomic_flag_clear(&c->busy);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
    set_buffers(c->buffers, c->numbers);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    int failed = 0;
    while (c->workers < threads - 1 && !failed) {
        failed = pthread_create(c->threads + c->workers, &attributes, work, c);
        c->workers += !failed;
    }
    pthread_attr_destroy(&attributes);
    if (failed) {
        NAME_destroy(c);
        return UPPER_ERROR_THREADS;
    }
    *made = c;
    return UPPER_OK;
}

/* Check the address and the number of elements of an argument. */
static int check(const void *pointer, int64_t count, int64_t needed, size_t alignment) {
    if (count != needed) return UPPER_ERROR_SIZE;
    if (!pointer) return needed ? UPPER_ERROR_NULL : UPPER_OK;
    return (uintptr_t)pointer % alignment ? UPPER_ERROR_ALIGNMENT : UPPER_OK;
}

const char *NAME_error_text(int code) {
    switch (code) {
    case UPPER_OK:
        return "no error";
    case UPPER_ERROR_NULL:
        return "a pointer is NULL";
    case UPPER_ERROR_ALIGNMENT:
        return "the address of an array is not a multiple of the size of its numbers";
    case UPPER_ERROR_SIZE:
        return "the number of elements of an array is wrong";
    case UPPER_ERROR_BATCH:
        return "BATCH_TEXT";
    case UPPER_ERROR_MEMORY:
        return "there is not enough memory";
    case UPPER_ERROR_THREADS:
        return "the number of threads is not between 0 and 1024, or they cannot be started";
    case UPPER_ERROR_BUSY:
        return "another thread is using the context";
    case UPPER_ERROR_PROCESSOR:
        return "the processor lacks instructions that the library uses";
    default:
        return "unknown error";
    }
}
"""
