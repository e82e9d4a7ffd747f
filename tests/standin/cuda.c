/*
 * Stands in for libcuda.so.1: GPUs whose memory is the host's, that do as a script says.
 *
 * STANDIN_CUDA names the script, which is read when the library is loaded. One statement a line; GPU is a number or *:
 *
 *   gpus N                 how many there are (8); the first sits at 0000:3b:00.0, each next one on the next bus
 *   memory MIB USED        the memory of each (64), and how much of it somebody has taken already (0)
 *   unmoved                copies are over at once and move nothing: as fast as any link
 *   slow WAY GPU MICROS    each copy `to` or `from` the GPU takes so much longer
 *   stuck GPU OFFSET       the lowest bit of this byte of the GPU's memory is always set
 *   twin GPU BLOCK         what is written to the BLOCKth piece of memory goes to the one before it
 *   error CALL GPU CODE    CALL fails with this code; GPU is * for calls without a GPU
 *   hang CALL GPU          CALL never returns, not even by a signal that can be caught
 *   print TEXT             cuInit prints TEXT on stdout
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, MOST_LINES = 32 };

static char lines[MOST_LINES][4][64];
static int count;
static long current = -1;
static char *arena;
static size_t taken;
static uint64_t blocks[4096];
static int block_count;

__attribute__((constructor)) static void read_script(void)
{
    const char *path = getenv("STANDIN_CUDA");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    while (file && count < MOST_LINES && fgets(line, sizeof line, file)) {
        int words = sscanf(line, "%63s %63s %63s %63s", lines[count][0], lines[count][1], lines[count][2], lines[count][3]);
        count += words > 0;
    }
    if (file)
        fclose(file);
}

/* The next line that begins with VERB after line AT, or -1. */
static int next(const char *verb, int at)
{
    while (++at < count)
        if (!strcmp(lines[at][0], verb))
            return at;
    return -1;
}

static long setting(const char *verb, int word, long usual)
{
    for (int at = -1; (at = next(verb, at)) >= 0;)
        if (lines[at][word][0])
            usual = atol(lines[at][word]);
    return usual;
}

static int fits(const char *said, long gpu)
{
    return !strcmp(said, "*") || atol(said) == gpu;
}

static int meet(const char *call)
{
    for (int at = -1; (at = next("hang", at)) >= 0;)
        if (!strcmp(lines[at][1], call) && fits(lines[at][2], current)) {
            sigset_t all;
            sigfillset(&all);
            sigprocmask(SIG_BLOCK, &all, NULL);
            for (;;)
                pause();
        }
    for (int at = -1; (at = next("error", at)) >= 0;)
        if (!strcmp(lines[at][1], call) && fits(lines[at][2], current))
            return atoi(lines[at][3]);
    return OK;
}

int cuInit(unsigned flags)
{
    int at = next("print", -1);
    if (at >= 0)
        puts(lines[at][1]);
    fflush(stdout);
    return meet("cuInit");
}

int cuGetErrorName(int code, const char **name)
{
    *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : "CUDA_ERROR_UNKNOWN";
    return OK;
}

int cuDeviceGetByPCIBusId(int *device, const char *address)
{
    unsigned domain, bus;
    if (sscanf(address, "%x:%x", &domain, &bus) != 2 || bus < 0x3b || (long)bus - 0x3b >= setting("gpus", 1, 8))
        return INVALID_DEVICE;
    *device = bus - 0x3b;
    current = *device;
    return meet("cuDeviceGetByPCIBusId");
}

int cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    *context = &lines;
    return meet("cuCtxCreate");
}

static size_t total(void)
{
    return (size_t)setting("memory", 1, 64) << 20;
}

static size_t used(void)
{
    return ((size_t)setting("memory", 2, 0) << 20) + taken;
}

int cuMemGetInfo_v2(size_t *free, size_t *all)
{
    *all = total();
    *free = total() - used();
    return meet("cuMemGetInfo");
}

int cuMemAlloc_v2(uint64_t *address, size_t size)
{
    int met = meet("cuMemAlloc");
    if (met)
        return met;
    if (used() + size > total() && next("unmoved", -1) < 0)
        return OUT_OF_MEMORY;
    if (!arena)
        arena = mmap(NULL, total(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *address = (uint64_t)(arena + taken);
    blocks[block_count++] = *address;
    taken += size;
    return OK;
}

int cuMemHostAlloc(void **address, size_t size, unsigned flags)
{
    *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return meet("cuMemHostAlloc");
}

static void dawdle(const char *way)
{
    for (int at = -1; (at = next("slow", at)) >= 0;)
        if (!strcmp(lines[at][1], way) && fits(lines[at][2], current))
            usleep(atol(lines[at][3]));
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size)
{
    int met = meet("cuMemcpyHtoD");
    dawdle("to");
    for (int at = -1; (at = next("twin", at)) >= 0;)
        for (int block = 1; block < block_count; block++)
            if (fits(lines[at][1], current) && atoi(lines[at][2]) == block && blocks[block] == to)
                to = blocks[block - 1];
    if (!met && next("unmoved", -1) < 0)
        memcpy((void *)to, from, size);
    return met;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size)
{
    int met = meet("cuMemcpyDtoH");
    dawdle("from");
    if (met || next("unmoved", -1) >= 0)
        return met;
    memcpy(to, (void *)from, size);
    for (int at = -1; (at = next("stuck", at)) >= 0;) {
        uint64_t place = (uint64_t)arena + strtoull(lines[at][2], NULL, 0);
        if (fits(lines[at][1], current) && place >= from && place < from + size)
            ((char *)to)[place - from] |= 1;
    }
    return OK;
}
