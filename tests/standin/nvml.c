/*
 * Stands in for libnvidia-ml.so.1: GPUs that are what a script says, beneath the real Python binding.
 *
 * STANDIN_NVML names the script. It is read again whenever it was replaced. One statement a line, the last one that
 * fits wins; GPU and SCOPE are a number or *:
 *
 *   gpus N                          how many there are (8)
 *   first DOMAIN BUS                where the first one sits; each next one on the next bus (0 3b, hexadecimal)
 *   value CALL GPU A [B ...]        what CALL returns, numbers or one word, instead of its default
 *   field ID GPU SCOPE TYPE VALUE   what a field holds; TYPE as in NVML: 0 double, 1 and 3 unsigned, 4 and 5 signed
 *   nofield ID GPU                  the field is not supported
 *   error CALL GPU CODE             CALL fails with this NVML error; `*` as CALL: everything that is asked of that GPU
 *   hang CALL GPU                   CALL never returns, not even by a signal that can be caught; SCRIPT.hangs appears
 *   crash CALL                      CALL brings the process down
 *   print TEXT                      nvmlInit prints TEXT on stdout
 *   event N GPU XID                 the Nth Xid event; each is delivered once to each process
 *
 * A symbol that a driver does not have yet, or no more, is left out by building with -DSYMBOL=something_else. Where a
 * function has several versions, the older ones are here, too, as in a driver.
 */
#define _GNU_SOURCE
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, TIMEOUT = 10, MOST_GPUS = 64, NVLINKS = 18 };

typedef unsigned int u32;
typedef unsigned long long u64;
typedef void *gpu_t;

static char *script;
static struct stat script_state;

static void read_script(void)
{
    const char *path = getenv("STANDIN_NVML");
    struct stat now;
    if (!path || stat(path, &now)) {
        free(script);
        script = NULL;
        return;
    }
    if (script && now.st_ino == script_state.st_ino && now.st_size == script_state.st_size &&
        now.st_mtim.tv_nsec == script_state.st_mtim.tv_nsec && now.st_mtim.tv_sec == script_state.st_mtim.tv_sec)
        return;
    script_state = now;
    free(script);
    script = calloc(1, now.st_size + 1);
    FILE *file = fopen(path, "r");
    if (file) {
        fread(script, 1, now.st_size, file);
        fclose(file);
    }
}

/* One line, cut into words. */
struct statement {
    int count;
    char *words[16];
    char text[512];
};

static int next_statement(const char **at, const char *verb, struct statement *found)
{
    size_t length = strlen(verb);
    while (*at && **at) {
        const char *line = *at, *end = strchrnul(line, '\n');
        *at = *end ? end + 1 : end;
        if (strncmp(line, verb, length) || line[length] != ' ' || (size_t)(end - line) >= sizeof found->text)
            continue;
        memcpy(found->text, line, end - line);
        found->text[end - line] = 0;
        found->count = 0;
        for (char *save, *word = strtok_r(found->text, " ", &save); word && found->count < 16;
             word = strtok_r(NULL, " ", &save))
            found->words[found->count++] = word;
        return 1;
    }
    return 0;
}

static int fits(const char *said, long number)
{
    return !strcmp(said, "*") || strtol(said, NULL, 10) == number;
}

static int fits_call(const char *said, const char *call)
{
    return !strcmp(said, "*") || !strcmp(said, call);
}

static long number_of(gpu_t gpu)
{
    return (long)gpu - 1;
}

/* What happens to CALL on this GPU (-1: none) before it does anything. */
static int meet(const char *call, long gpu)
{
    struct statement said;
    int code = OK;
    read_script();
    for (const char *at = script; next_statement(&at, "crash", &said);)
        if (fits_call(said.words[1], call))
            abort();
    for (const char *at = script; next_statement(&at, "hang", &said);)
        if (said.count == 3 && fits_call(said.words[1], call) && fits(said.words[2], gpu)) {
            char said_so[4096];
            snprintf(said_so, sizeof said_so, "%s.hangs", getenv("STANDIN_NVML"));
            fclose(fopen(said_so, "w"));
            sigset_t all;
            sigfillset(&all);
            sigprocmask(SIG_BLOCK, &all, NULL);
            for (;;)
                pause();
        }
    for (const char *at = script; next_statement(&at, "error", &said);)
        if (said.count == 4 && fits(said.words[2], gpu))
            if (!strcmp(said.words[1], call) || (!strcmp(said.words[1], "*") && gpu >= 0))
                code = atoi(said.words[3]);
    return code;
}

/* The numbers of a `value` statement, over the defaults that are there. */
static void values(const char *call, long gpu, int count, double *into)
{
    struct statement said;
    for (const char *at = script; next_statement(&at, "value", &said);)
        if (said.count >= 4 && !strcmp(said.words[1], call) && fits(said.words[2], gpu))
            for (int i = 0; i < count && i + 3 < said.count; i++)
                into[i] = strtod(said.words[i + 3], NULL);
}

static void word(const char *call, long gpu, char *into, u32 length, const char *usual)
{
    struct statement said;
    snprintf(into, length, "%s", usual);
    for (const char *at = script; next_statement(&at, "value", &said);)
        if (said.count >= 4 && !strcmp(said.words[1], call) && fits(said.words[2], gpu))
            snprintf(into, length, "%s", said.words[3]);
}

static u32 gpus(void)
{
    struct statement said;
    u32 count = 8;
    for (const char *at = script; next_statement(&at, "gpus", &said);)
        count = atoi(said.words[1]);
    return count;
}

#define ASK(call)                                                                                                      \
    int met = meet(#call, number_of(gpu));                                                                             \
    if (met)                                                                                                           \
        return met;

#define ONE(call, usual)                                                                                               \
    int call(gpu_t gpu, u32 *into)                                                                                     \
    {                                                                                                                  \
        double number[1] = {usual};                                                                                    \
        ASK(call)                                                                                                      \
        values(#call, number_of(gpu), 1, number);                                                                      \
        *into = number[0];                                                                                             \
        return OK;                                                                                                     \
    }

#define TWO(call, first, second)                                                                                       \
    int call(gpu_t gpu, u32 *into, u32 *other)                                                                         \
    {                                                                                                                  \
        double number[2] = {first, second};                                                                            \
        ASK(call)                                                                                                      \
        values(#call, number_of(gpu), 2, number);                                                                      \
        *into = number[0];                                                                                             \
        *other = number[1];                                                                                            \
        return OK;                                                                                                     \
    }

int nvmlInitWithFlags(u32 flags)
{
    struct statement said;
    int met = meet("nvmlInit", -1);
    for (const char *at = script; next_statement(&at, "print", &said);)
        puts(said.words[1]);
    fflush(stdout);
    return met;
}

int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void)
{
    return meet("nvmlShutdown", -1);
}

const char *nvmlErrorString(int code)
{
    return code == 15 ? "GPU is lost" : "some NVML error";
}

int nvmlSystemGetDriverVersion(char *version, u32 length)
{
    int met = meet("nvmlSystemGetDriverVersion", -1);
    word("nvmlSystemGetDriverVersion", -1, version, length, "570.124.06");
    return met;
}

int nvmlDeviceGetCount_v2(u32 *count)
{
    int met = meet("nvmlDeviceGetCount", -1);
    *count = gpus();
    return met;
}

int nvmlDeviceGetCount(u32 *count)
{
    return nvmlDeviceGetCount_v2(count);
}

int nvmlDeviceGetHandleByIndex_v2(u32 index, gpu_t *gpu)
{
    *gpu = (gpu_t)(long)(index + 1);
    return index < gpus() ? meet("nvmlDeviceGetHandleByIndex", index) : INVALID_ARGUMENT;
}

int nvmlDeviceGetHandleByIndex(u32 index, gpu_t *gpu)
{
    return nvmlDeviceGetHandleByIndex_v2(index, gpu);
}

typedef struct {
    char bus_id_legacy[16];
    u32 domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info;

int nvmlDeviceGetPciInfo_v3(gpu_t gpu, pci_info *info)
{
    struct statement said;
    long domain = 0, bus = 0x3b;
    char usual[32];
    ASK(nvmlDeviceGetPciInfo)
    for (const char *at = script; next_statement(&at, "first", &said);) {
        domain = strtol(said.words[1], NULL, 16);
        bus = strtol(said.words[2], NULL, 16);
    }
    memset(info, 0, sizeof *info);
    info->domain = domain;
    info->bus = bus + number_of(gpu);
    snprintf(usual, sizeof usual, "%08lX:%02lX:00.0", domain, bus + number_of(gpu));
    word("nvmlDeviceGetPciInfo", number_of(gpu), info->bus_id, sizeof info->bus_id, usual);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%s", info->bus_id + strlen("0000"));
    return OK;
}

/* The older structure ends with four reserved numbers where the newer one has the longer address. */
int nvmlDeviceGetPciInfo_v2(gpu_t gpu, pci_info *info)
{
    int met = nvmlDeviceGetPciInfo_v3(gpu, info);
    memset(info->bus_id, 0xff, 16);
    return met;
}

int nvmlDeviceGetUUID(gpu_t gpu, char *uuid, u32 length)
{
    char usual[64];
    ASK(nvmlDeviceGetUUID)
    snprintf(usual, sizeof usual, "GPU-%08lx-0000-4000-8000-000000000000", number_of(gpu) + 1);
    word("nvmlDeviceGetUUID", number_of(gpu), uuid, length, usual);
    return OK;
}

int nvmlDeviceGetSerial(gpu_t gpu, char *serial, u32 length)
{
    char usual[32];
    ASK(nvmlDeviceGetSerial)
    snprintf(usual, sizeof usual, "165012301%04ld", number_of(gpu));
    word("nvmlDeviceGetSerial", number_of(gpu), serial, length, usual);
    return OK;
}

int nvmlDeviceGetName(gpu_t gpu, char *name, u32 length)
{
    ASK(nvmlDeviceGetName)
    word("nvmlDeviceGetName", number_of(gpu), name, length, "NVIDIA H100 80GB HBM3");
    return OK;
}

int nvmlDeviceGetGspFirmwareVersion(gpu_t gpu, char *version)
{
    ASK(nvmlDeviceGetGspFirmwareVersion)
    word("nvmlDeviceGetGspFirmwareVersion", number_of(gpu), version, 64, "570.124.06");
    return OK;
}

ONE(nvmlDeviceGetCurrPcieLinkWidth, 16)
ONE(nvmlDeviceGetMaxPcieLinkWidth, 16)
ONE(nvmlDeviceGetCurrPcieLinkGeneration, 5)
ONE(nvmlDeviceGetMaxPcieLinkGeneration, 5)
ONE(nvmlDeviceGetPowerUsage, 121000)
ONE(nvmlDeviceGetMaxMigDeviceCount, 7)
TWO(nvmlDeviceGetMigMode, 0, 0)
TWO(nvmlDeviceGetGspFirmwareMode, 1, 1)

typedef struct {
    u32 gpu, memory;
} utilization;

int nvmlDeviceGetUtilizationRates(gpu_t gpu, utilization *into)
{
    double number[2] = {0, 0};
    ASK(nvmlDeviceGetUtilizationRates)
    values("nvmlDeviceGetUtilizationRates", number_of(gpu), 2, number);
    into->gpu = number[0];
    into->memory = number[1];
    return OK;
}

typedef struct {
    u64 total, free, used;
} memory_info;

int nvmlDeviceGetMemoryInfo(gpu_t gpu, memory_info *into)
{
    double number[1] = {630e6};
    ASK(nvmlDeviceGetMemoryInfo)
    values("nvmlDeviceGetMemoryInfo", number_of(gpu), 1, number);
    into->total = 85e9;
    into->used = number[0];
    into->free = into->total - into->used;
    return OK;
}

static int clock_of(const char *call, gpu_t gpu, u32 *into)
{
    double number[1] = {1980};
    int met = meet(call, number_of(gpu));
    values(call, number_of(gpu), 1, number);
    *into = number[0];
    return met;
}

int nvmlDeviceGetClockInfo(gpu_t gpu, u32 kind, u32 *into)
{
    return kind == 1 ? clock_of("nvmlDeviceGetClockInfo", gpu, into) : INVALID_ARGUMENT; /* that of the SMs alone */
}

int nvmlDeviceGetMaxClockInfo(gpu_t gpu, u32 kind, u32 *into)
{
    return kind == 1 ? clock_of("nvmlDeviceGetMaxClockInfo", gpu, into) : INVALID_ARGUMENT;
}

int nvmlDeviceGetMigDeviceHandleByIndex(gpu_t gpu, u32 index, gpu_t *instance)
{
    double number[1] = {0};
    ASK(nvmlDeviceGetMigDeviceHandleByIndex)
    values("instances", number_of(gpu), 1, number);
    *instance = gpu;
    return index < number[0] ? OK : 6; /* not found */
}

int nvmlDeviceValidateInforom(gpu_t gpu)
{
    return meet("nvmlDeviceValidateInforom", number_of(gpu));
}

int nvmlDeviceGetTemperature(gpu_t gpu, u32 sensor, u32 *into)
{
    double number[1] = {41};
    ASK(nvmlDeviceGetTemperature)
    values("nvmlDeviceGetTemperature", number_of(gpu), 1, number);
    *into = number[0];
    return OK;
}

typedef struct {
    u32 version;
    int margin;
} margin_temperature;

int nvmlDeviceGetMarginTemperature(gpu_t gpu, margin_temperature *into)
{
    double number[1] = {46};
    ASK(nvmlDeviceGetMarginTemperature)
    values("nvmlDeviceGetMarginTemperature", number_of(gpu), 1, number);
    into->margin = number[0];
    return OK;
}

static int reasons(const char *call, gpu_t gpu, u64 *into)
{
    double number[1] = {1};
    int met = meet(call, number_of(gpu));
    values("throttle", number_of(gpu), 1, number);
    *into = number[0];
    return met;
}

int nvmlDeviceGetCurrentClocksEventReasons(gpu_t gpu, u64 *into)
{
    return reasons("nvmlDeviceGetCurrentClocksEventReasons", gpu, into);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(gpu_t gpu, u64 *into)
{
    return reasons("nvmlDeviceGetCurrentClocksThrottleReasons", gpu, into);
}

int nvmlDeviceGetNvLinkState(gpu_t gpu, u32 link, u32 *into)
{
    struct statement said;
    ASK(nvmlDeviceGetNvLinkState)
    if (link >= NVLINKS)
        return INVALID_ARGUMENT;
    *into = 1;
    for (const char *at = script; next_statement(&at, "value", &said);)
        if (said.count == 5 && !strcmp(said.words[1], "nvmlDeviceGetNvLinkState") && fits(said.words[2], number_of(gpu)) &&
            fits(said.words[3], link))
            *into = atoi(said.words[4]);
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(gpu_t gpu, u32 *count, void *infos)
{
    double number[1] = {0};
    ASK(nvmlDeviceGetComputeRunningProcesses)
    values("nvmlDeviceGetComputeRunningProcesses", number_of(gpu), 1, number);
    if (!number[0]) {
        *count = 0;
        return OK;
    }
    if (!infos || *count < number[0]) {
        *count = number[0];
        return 7; /* the buffer is too small */
    }
    memset(infos, 0, (size_t)number[0] * 24);
    *count = number[0];
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v2(gpu_t gpu, u32 *count, void *infos)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(gpu, count, infos);
}

int nvmlDeviceGetRowRemapperHistogram(gpu_t gpu, u32 *into)
{
    double number[5] = {640, 0, 0, 0, 0};
    ASK(nvmlDeviceGetRowRemapperHistogram)
    values("nvmlDeviceGetRowRemapperHistogram", number_of(gpu), 5, number);
    for (int i = 0; i < 5; i++)
        into[i] = number[i];
    return OK;
}

typedef struct {
    u32 version;
    u64 counters[11];
    u32 threshold_exceeded;
} sram_status;

int nvmlDeviceGetSramEccErrorStatus(gpu_t gpu, sram_status *into)
{
    double number[12] = {0};
    ASK(nvmlDeviceGetSramEccErrorStatus)
    values("nvmlDeviceGetSramEccErrorStatus", number_of(gpu), 12, number);
    for (int i = 0; i < 11; i++)
        into->counters[i] = number[i];
    into->threshold_exceeded = number[11];
    return OK;
}

int nvmlDeviceGetRepairStatus(gpu_t gpu, u32 *into)
{
    double number[2] = {0, 0};
    ASK(nvmlDeviceGetRepairStatus)
    values("nvmlDeviceGetRepairStatus", number_of(gpu), 2, number);
    into[1] = number[0];
    into[2] = number[1];
    return OK;
}

typedef struct {
    u32 version;
    unsigned char cluster[16];
    u32 status, clique, state, health_mask;
    unsigned char summary;
} fabric_info;

int nvmlDeviceGetGpuFabricInfoV(gpu_t gpu, fabric_info *into)
{
    double number[4] = {3, 0, 0, 0}; /* state, status, health mask, summary */
    ASK(nvmlDeviceGetGpuFabricInfoV)
    if (into->version >> 24 == 3 && meet("fabric-v3", number_of(gpu)))
        return 25; /* the version of the structure is newer than the driver */
    values("nvmlDeviceGetGpuFabricInfoV", number_of(gpu), 4, number);
    into->state = number[0];
    into->status = number[1];
    into->health_mask = number[2];
    if (into->version >> 24 == 3)
        into->summary = number[3];
    return OK;
}

typedef struct {
    u32 id, scope;
    long long timestamp, latency;
    u32 type;
    int code;
    union { double d; u64 u; long long s; } value;
} field_value;

/* Per-link fields up to 163 are of older links, from 206 on of NVLink 5: an H100 has the former. */
static int has_by_default(u32 id)
{
    return !(id >= 205 && id <= 222) && !(id >= 289 && id <= 295) && id < 301;
}

static void read_field(gpu_t gpu, field_value *field)
{
    struct statement said;
    field->type = 3;
    field->code = has_by_default(field->id) ? OK : NOT_SUPPORTED;
    field->value.u = field->id == 91 ? NVLINKS : field->id == 165 ? 1 : field->id == 1 || field->id == 2 ? 1 : 0;
    if (field->id >= 161 && field->id <= 165 && field->scope >= NVLINKS)
        field->code = INVALID_ARGUMENT;
    for (const char *at = script; next_statement(&at, "field", &said);)
        if (said.count == 6 && fits(said.words[1], field->id) && fits(said.words[2], number_of(gpu)) &&
            fits(said.words[3], field->scope)) {
            field->code = OK;
            field->type = atoi(said.words[4]);
            field->value.u = 0xAAAAAAAAAAAAAAAAull; /* the driver does not clear what a smaller type leaves */
            if (field->type == 0)
                field->value.d = strtod(said.words[5], NULL);
            else if (field->type == 1)
                *(u32 *)&field->value = strtoul(said.words[5], NULL, 10);
            else if (field->type == 5)
                *(int *)&field->value = strtol(said.words[5], NULL, 10);
            else
                field->value.u = strtoull(said.words[5], NULL, 10);
        }
    for (const char *at = script; next_statement(&at, "nofield", &said);)
        if (said.count == 3 && fits(said.words[1], field->id) && fits(said.words[2], number_of(gpu)))
            field->code = NOT_SUPPORTED;
}

int nvmlDeviceGetFieldValues(gpu_t gpu, int count, field_value *fields)
{
    int met = meet("nvmlDeviceGetFieldValues", number_of(gpu));
    for (int i = 0; i < count; i++) {
        read_field(gpu, &fields[i]);
        if (met)
            fields[i].code = met; /* as the real one does: each field tells its own error */
    }
    return OK;
}

/* The real one sleeps in the kernel too: a wait must cost nothing. */
static void wait_for_a_new_script(u32 milliseconds)
{
    static int watch = -1;
    const char *path = getenv("STANDIN_NVML");
    char folder[4096], changes[4096];
    if (watch < 0 && path) {
        snprintf(folder, sizeof folder, "%s", path);
        watch = inotify_init1(IN_NONBLOCK);
        inotify_add_watch(watch, dirname(folder), IN_MOVED_TO | IN_CLOSE_WRITE);
    }
    struct pollfd replaced = {.fd = watch, .events = POLLIN};
    poll(&replaced, 1, milliseconds);
    while (watch >= 0 && read(watch, changes, sizeof changes) > 0)
        ;
}

int nvmlEventSetCreate(void **set)
{
    *set = (void *)1;
    return meet("nvmlEventSetCreate", -1);
}

int nvmlEventSetFree(void *set)
{
    return OK;
}

int nvmlDeviceGetSupportedEventTypes(gpu_t gpu, u64 *types)
{
    ASK(nvmlDeviceGetSupportedEventTypes)
    *types = 0x1f;
    return OK;
}

int nvmlDeviceRegisterEvents(gpu_t gpu, u64 types, void *set)
{
    return meet("nvmlDeviceRegisterEvents", number_of(gpu));
}

typedef struct {
    gpu_t gpu;
    u64 type, data;
    u32 gpu_instance, compute_instance;
} event_data;

int nvmlEventSetWait_v2(void *set, event_data *event, u32 milliseconds)
{
    static long delivered;
    struct statement said;
    int met = meet("nvmlEventSetWait", -1);
    if (met)
        return met;
    for (int times = 0; times < 2; times++) {
        read_script();
        for (const char *at = script; next_statement(&at, "event", &said);)
            if (said.count == 4 && atol(said.words[1]) == delivered + 1) {
                delivered++;
                event->gpu = (gpu_t)(atol(said.words[2]) + 1);
                event->type = 8;
                event->data = atol(said.words[3]);
                event->gpu_instance = event->compute_instance = ~0u;
                return OK;
            }
        if (!times)
            wait_for_a_new_script(milliseconds);
    }
    return TIMEOUT;
}
