/*
 * One of the writers of the flood: kmsg_writer TAG FIRST STEP LINES XIDS RATE
 *
 * Writes the lines FIRST, FIRST + STEP, ... below LINES; XIDS of all LINES, spread evenly, are faults of level <3>.
 * RATE: lines a second of this writer, 0 = as fast as it can. Prints how many lines the kernel took.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void pause_until(double moment)
{
    double left = moment - now();
    if (left > 0) {
        struct timespec t = {(time_t)left, (long)((left - (time_t)left) * 1e9)};
        nanosleep(&t, NULL);
    }
}

static int compose(char *line, size_t size, const char *tag, long i, long every)
{
    if (i % every == every / 2)
        return snprintf(line, size, "<3>NVRM: Xid (PCI:0000:3b:00): 79, pid=%ld, name=%s, GPU has fallen off the bus.\n",
                        i / every, tag);
    return snprintf(line, size, "<6>flood %s line %07ld of ordinary length, like most that a driver prints in trouble\n", tag, i);
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    long first = atol(argv[2]), step = atol(argv[3]), lines = atol(argv[4]), every = lines / atol(argv[5]), taken = 0;
    double rate = atof(argv[6]), start = now();
    int device = open("/dev/kmsg", O_WRONLY);
    char line[256];
    for (long i = first; i < lines; i += step) {
        taken += write(device, line, compose(line, sizeof line, argv[1], i, every)) > 0;
        if (rate > 0 && taken % 16 == 0)
            pause_until(start + taken / rate);
    }
    printf("%ld\n", taken);
    return 0;
}
