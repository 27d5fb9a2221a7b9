/* A stand-in for NVIDIA's management library: GPUs named in FAKE_NVML, separated by commas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, FIRST_MINOR = 90 };

static const char *products(void) {
    const char *text = getenv("FAKE_NVML");
    return text ? text : "";
}

static unsigned count(void) {
    const char *text = products();
    unsigned found = *text ? 1 : 0;
    for (; *text; text++) found += *text == ',';
    return found;
}

static unsigned number(void *device) { return (unsigned)((size_t)device - 1); }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "an error"; }
int nvmlDeviceGetCount_v2(unsigned *found) { *found = count(); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= count()) return INVALID;
    *device = (void *)(size_t)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    const char *text = products();
    for (unsigned skip = number(device); skip; text++) skip -= *text == ',';
    snprintf(name, length, "%.*s", (int)strcspn(text, ","), text);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    snprintf(uuid, length, "GPU-00000000-0000-0000-0000-%012u", number(device));
    return SUCCESS;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
    *minor = FIRST_MINOR + number(device);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]) {
    (void)device;
    memory[0] = memory[1] = 24ULL << 30;
    memory[2] = 0;
    return SUCCESS;
}
