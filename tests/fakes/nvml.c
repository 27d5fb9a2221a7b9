/* A stand-in for NVIDIA's management library: GPUs named in FAKE_NVML, separated by commas.

   What they do is read anew each time from the file FAKE_NVML_BUSY, a line for each GPU that does anything: its number,
   the bytes in use, the percent of utilization, and the ids of processes. For example: `1 1073741824 87 4321`.
   One that does not tell its utilization has `?` there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7, FIRST_MINOR = 90, MOST = 64 };

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

struct process { unsigned pid; unsigned long long memory; unsigned instance, part; };
struct busy { unsigned long long memory; unsigned percent, hidden, count; struct process processes[MOST]; };

static struct busy busy(void *device) {
    struct busy found = {0};
    char line[4096];
    const char *path = getenv("FAKE_NVML_BUSY");
    FILE *file = path ? fopen(path, "r") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        char *rest = line;
        if (strtoul(rest, &rest, 10) != number(device)) continue;
        found.memory = strtoull(rest, &rest, 10);
        found.hidden = strchr(rest, '?') != NULL;
        found.percent = strtoul(rest, &rest, 10);
        for (unsigned pid; found.count < MOST && (pid = strtoul(rest, &rest, 10)); found.count++)
            found.processes[found.count] = (struct process){pid, found.memory, -1, -1};
    }
    if (file) fclose(file);
    return found;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]) {
    memory[0] = 24ULL << 30;
    memory[2] = busy(device).memory;
    memory[1] = memory[0] - memory[2];
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]) {
    struct busy now = busy(device);
    rates[0] = rates[1] = now.percent;
    return now.hidden ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *room, struct process *processes) {
    struct busy now = busy(device);
    int fits = *room >= now.count;
    *room = now.count;
    if (!fits) return TOO_SMALL;
    for (unsigned i = 0; i < now.count; i++) processes[i] = now.processes[i];
    return SUCCESS;
}
