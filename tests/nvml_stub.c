/* libnvidia-ml.so.1 of a machine that tests/nvml_stub.py describes in machine.h; enums and structures are nvml.h's. */
#include <stdio.h>
#include <string.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6, INSUFFICIENT_SIZE, LOST = 15 };

typedef struct { const char *function; int code; } Failure;
typedef struct {
    const char *name, *uuid, *bus_id;
    int major, minor;
    unsigned long long memory, used;
    int mig, compute_mode, pages_pending, rows_remapped, rows_pending, rows_failed;
    unsigned long long uncorrected;
    unsigned power_cap, default_power_cap, sm_clock, applications_clock, default_applications_clock, temperature;
    unsigned long long throttle, affinity[16];
    const unsigned *processes;
    unsigned process_count;
    const Failure *failures;
} Card;

#include "machine.h"

static int failure(const Card *card, const char *function) {
    for (const Failure *each = card->failures; each->function; each++)
        if (!strcmp(each->function, function) || !strcmp(each->function, "*")) return each->code;
    return SUCCESS;
}

#define ASK(card) do { int code = failure(card, __func__); if (code) return code; } while (0)
#define NUMBER(function, type, value) \
    int function(const Card *card, type *answer) { ASK(card); *answer = (type)(value); return SUCCESS; }
#define NUMBER_OF(function, type, value) \
    int function(const Card *card, int kind, type *answer) { ASK(card); (void)kind; *answer = (type)(value); return SUCCESS; }
#define AMPERE(card) ((card)->major >= 8)

static int text(char *answer, unsigned size, const char *value) {
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(answer, value);
    return SUCCESS;
}

int nvmlInit_v2(void) { return INIT_CODE; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return INIT_CODE; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) {
    switch (code) {
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case 9: return "Driver Not Loaded";
    case LOST: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "an error";
    }
}
int nvmlSystemGetDriverVersion(char *answer, unsigned size) { return text(answer, size, DRIVER); }
int nvmlSystemGetNVMLVersion(char *answer, unsigned size) { return text(answer, size, "12." DRIVER); }
int nvmlSystemGetCudaDriverVersion(int *answer) { *answer = CUDA_DRIVER; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *answer) { *answer = CUDA_DRIVER; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *answer) { *answer = CARD_COUNT; return SUCCESS; }

static int found(const Card *card, const char *function, const Card **answer) {
    int code = failure(card, function);
    if (code == SUCCESS) *answer = card;
    return code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const Card **answer) {
    return index < CARD_COUNT ? found(&cards[index], __func__, answer) : INVALID_ARGUMENT;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, const Card **answer) {
    for (unsigned index = 0; index < CARD_COUNT; index++)
        if (!strcmp(cards[index].uuid, uuid)) return found(&cards[index], __func__, answer);
    return NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, const Card **answer) {
    for (unsigned index = 0; index < CARD_COUNT; index++)
        if (!strcmp(cards[index].bus_id, bus_id)) return found(&cards[index], __func__, answer);
    return NOT_FOUND;
}
int nvmlDeviceGetName(const Card *card, char *answer, unsigned size) { ASK(card); return text(answer, size, card->name); }
int nvmlDeviceGetUUID(const Card *card, char *answer, unsigned size) { ASK(card); return text(answer, size, card->uuid); }
NUMBER(nvmlDeviceGetIndex, unsigned, card - cards)
NUMBER(nvmlDeviceGetMinorNumber, unsigned, card - cards)
int nvmlDeviceGetCudaComputeCapability(const Card *card, int *major, int *minor) {
    ASK(card);
    *major = card->major, *minor = card->minor;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(const Card *card, unsigned long long *total_free_used) {
    ASK(card);
    total_free_used[0] = card->memory, total_free_used[1] = card->memory - card->used, total_free_used[2] = card->used;
    return SUCCESS;
}
int nvmlDeviceGetMigMode(const Card *card, unsigned *current, unsigned *pending) {
    ASK(card);
    if (!AMPERE(card)) return NOT_SUPPORTED;
    *current = *pending = card->mig;
    return SUCCESS;
}
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char bus_id[32];
} Pci;
int nvmlDeviceGetPciInfo_v3(const Card *card, Pci *answer) {
    ASK(card);
    memset(answer, 0, sizeof *answer);
    sscanf(card->bus_id, "%x:%x:%x", &answer->domain, &answer->bus, &answer->device);
    text(answer->legacy, sizeof answer->legacy, card->bus_id + 4);
    return text(answer->bus_id, sizeof answer->bus_id, card->bus_id);
}
NUMBER(nvmlDeviceGetComputeMode, int, card->compute_mode)
NUMBER(nvmlDeviceGetPersistenceMode, int, 1)
int nvmlDeviceGetEccMode(const Card *card, int *current, int *pending) { ASK(card); *current = *pending = 1; return SUCCESS; }
int nvmlDeviceGetTotalEccErrors(const Card *card, int kind, int counter, unsigned long long *answer) {
    ASK(card);
    (void)counter;
    *answer = kind == 1 ? card->uncorrected : 0;
    return SUCCESS;
}
int nvmlDeviceGetRemappedRows(const Card *card, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    ASK(card);
    if (!AMPERE(card)) return NOT_SUPPORTED;
    *corrected = 0, *uncorrected = card->rows_remapped, *pending = card->rows_pending, *failed = card->rows_failed;
    return SUCCESS;
}
int nvmlDeviceGetRetiredPagesPendingStatus(const Card *card, int *answer) {
    ASK(card);
    if (AMPERE(card)) return NOT_SUPPORTED;
    *answer = card->pages_pending;
    return SUCCESS;
}
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, card->power_cap)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, card->power_cap)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, card->default_power_cap)
NUMBER(nvmlDeviceGetPowerUsage, unsigned, 60000)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, card->throttle)
NUMBER_OF(nvmlDeviceGetTemperature, unsigned, card->temperature)
NUMBER_OF(nvmlDeviceGetTemperatureThreshold, unsigned, 90)
NUMBER_OF(nvmlDeviceGetClockInfo, unsigned, kind == 1 ? card->sm_clock : 877)
NUMBER_OF(nvmlDeviceGetMaxClockInfo, unsigned, kind == 1 ? card->default_applications_clock + 240 : 877)
NUMBER_OF(nvmlDeviceGetApplicationsClock, unsigned, card->applications_clock)
NUMBER_OF(nvmlDeviceGetDefaultApplicationsClock, unsigned, card->default_applications_clock)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, AMPERE(card) ? 4 : 3)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, AMPERE(card) ? 4 : 3)
int nvmlDeviceGetCpuAffinity(const Card *card, unsigned words, unsigned long *answer) {
    ASK(card);
    for (unsigned place = 0; place < words; place++) answer[place] = place < 16 ? card->affinity[place] : 0;
    return SUCCESS;
}
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(const Card *card, unsigned *count, Process *answer) {
    ASK(card);
    unsigned room = *count;
    *count = card->process_count;
    if (card->process_count > room) return INSUFFICIENT_SIZE;
    for (unsigned place = 0; place < card->process_count; place++)
        answer[place] = (Process){card->processes[place], 1 << 30, ~0u, ~0u};
    return SUCCESS;
}
static int nobody(const Card *card, unsigned *count, const char *function) { *count = 0; return failure(card, function); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(const Card *card, unsigned *count, Process *answer) {
    (void)answer;
    return nobody(card, count, __func__);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(const Card *card, unsigned *count, Process *answer) {
    (void)answer;
    return nobody(card, count, __func__);
}
int nvmlDeviceGetNvLinkState(const Card *card, unsigned link, int *active) {
    ASK(card);
    (void)link, (void)active;
    return NOT_SUPPORTED;
}
int nvmlDeviceGetTopologyCommonAncestor(const Card *card, const Card *other, int *level) {
    ASK(card);
    ASK(other);
    *level = 40;
    return SUCCESS;
}
