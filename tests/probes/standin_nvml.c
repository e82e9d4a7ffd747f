/*
 * Stands in for libnvidia-ml.so.1: two GPUs, and the troubles that real drivers have.
 * STANDIN_NVML: empty = healthy | no-driver | lost (GPU 1) | hang | crash | chatty | weird
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };

typedef struct {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info;

static int is(const char *trouble)
{
    const char *said = getenv("STANDIN_NVML");
    return said && !strcmp(said, trouble);
}

int nvmlInitWithFlags(unsigned int flags)
{
    if (is("chatty"))
        puts("a library that prints where it should not");
    fflush(stdout);
    while (is("hang"))
        pause();
    if (is("crash"))
        abort();
    return is("no-driver") ? DRIVER_NOT_LOADED : SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = 2;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle)
{
    *handle = (void *)(long)(index + 1);
    return index == 1 && is("lost") ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *handle, pci_info *info)
{
    memset(info, 0, sizeof *info);
    sprintf(info->bus_id, is("weird") ? "somewhere" : "00000000:%lX:00.0", 0x3A + (long)handle);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned int length)
{
    snprintf(uuid, length, "GPU-%08lx-0000-4000-8000-000000000000", (long)handle);
    return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned int length)
{
    snprintf(name, length, "NVIDIA H100 80GB HBM3");
    return SUCCESS;
}

const char *nvmlErrorString(int result)
{
    return result == GPU_IS_LOST ? "GPU is lost" : "Driver Not Loaded";
}
