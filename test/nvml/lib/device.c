/* The system, its boards and what they are. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int sessions; /* nvmlInit counts */

nvmlReturn_t initialised(void) { return __atomic_load_n(&sessions, __ATOMIC_SEQ_CST) > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED; }

static nvmlReturn_t put_text(char *to, unsigned length, const char *from) {
    if (to == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    return snprintf(to, length, "%s", from) < (int)length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    struct session s;
    nvmlReturn_t r = begin(&s);
    if (r == NVML_SUCCESS) {
        __atomic_add_fetch(&sessions, 1, __ATOMIC_SEQ_CST);
        end(&s, r);
    }
    return r;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void) {
    if (initialised() != NVML_SUCCESS)
        return NVML_ERROR_UNINITIALIZED;
    __atomic_sub_fetch(&sessions, 1, __ATOMIC_SEQ_CST);
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
    case NVML_ERROR_IN_USE: return "In use by another client";
    case NVML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument Version Mismatch";
    default: return "Unknown Error";
    }
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    BEGIN(s);
    return end(&s, put_text(version, length, s.state.driver));
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    struct session s; /* needs no nvmlInit, as in NVML */
    nvmlReturn_t r = begin(&s);
    return r == NVML_SUCCESS ? end(&s, put_text(version, length, s.state.nvml)) : r;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    BEGIN(s);
    *version = s.state.cuda;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    BEGIN(s);
    *count = s.state.gpu_count;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    BEGIN(s);
    if (index >= s.state.gpu_count)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    device->handle = handle_of(KIND_GPU, index, 0, 0);
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device) {
    BEGIN(s);
    for (unsigned i = 0; i < s.state.gpu_count; i++)
        if (strcasecmp(s.state.gpus[i].bus, bus) == 0) {
            device->handle = handle_of(KIND_GPU, i, 0, 0);
            return end(&s, NVML_SUCCESS);
        }
    return end(&s, NVML_ERROR_NOT_FOUND);
}

/* A MIG device's UUID is its own, and stays the same for the same instance of the same board. */
static void mig_uuid(char to[TEXT], const struct gpu *g, unsigned instance, unsigned compute) {
    uint64_t h[2] = {0xcbf29ce484222325u, 0x9e3779b97f4a7c15u};
    char text[TEXT + 32];
    snprintf(text, sizeof text, "%s/%u/%u", g->uuid, instance, compute);
    for (const char *c = text; *c != '\0'; c++)
        for (int i = 0; i < 2; i++)
            h[i] = (h[i] ^ (unsigned char)*c) * 0x100000001b3u;
    snprintf(to, TEXT, "MIG-%08x-%04x-%04x-%04x-%012llx", (unsigned)(h[0] >> 32), (unsigned)(h[0] >> 16 & 0xffff),
             (unsigned)(h[0] & 0xffff), (unsigned)(h[1] >> 48), (unsigned long long)(h[1] & 0xffffffffffffu));
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    BEGIN(s);
    for (unsigned i = 0; i < s.state.gpu_count; i++) {
        struct gpu *g = &s.state.gpus[i];
        void *found = strcmp(g->uuid, uuid) == 0 ? handle_of(KIND_GPU, i, 0, 0) : NULL;
        for (unsigned k = 0; k < g->instance_count; k++)
            for (unsigned c = 0; c < g->instances[k].compute_count; c++) {
                char mig[TEXT];
                mig_uuid(mig, g, g->instances[k].id, g->instances[k].compute[c].id);
                if (strcmp(mig, uuid) == 0)
                    found = handle_of(KIND_MIG_DEVICE, i, g->instances[k].id, g->instances[k].compute[c].id);
            }
        if (found != NULL) {
            device->handle = found;
            return end(&s, NVML_SUCCESS);
        }
    }
    return end(&s, NVML_ERROR_NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    BEGIN_GPU(s, g, device);
    struct ref r = ref_of(device.handle);
    char mig[TEXT];
    if (r.kind == KIND_MIG_DEVICE)
        mig_uuid(mig, g, r.instance, r.compute);
    return end(&s, put_text(uuid, length, r.kind == KIND_MIG_DEVICE ? mig : g->uuid));
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    BEGIN_GPU(s, g, device);
    struct ref r = ref_of(device.handle);
    if (r.kind == KIND_GPU)
        return end(&s, put_text(name, length, g->name));
    char mig[3 * TEXT];
    struct profile *p = profile_by_id(g, find_instance(g, r.instance)->profile_id);
    snprintf(mig, sizeof mig, "%s MIG %s", g->name, p != NULL ? p->name : "");
    return end(&s, put_text(name, length, mig));
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    BEGIN_GPU(s, g, device);
    (void)g;
    *index = ref_of(device.handle).gpu;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    BEGIN(s);
    if (find_whole_gpu(&s.state, device) == NULL)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    *minor = ref_of(device.handle).gpu;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    BEGIN_GPU(s, g, device);
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "%.31s", g->bus);
    unsigned function;
    if (sscanf(g->bus, "%x:%x:%x.%x", &pci->domain, &pci->bus, &pci->device, &function) == 4)
        snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.%u", pci->domain & 0xffff, pci->bus & 0xff,
                 pci->device & 0xff, function & 0x7);
    pci->pciDeviceId = (unsigned)strtoul(g->pci_id, NULL, 16);
    return end(&s, NVML_SUCCESS);
}

/* The memory of the board, or of a MIG device's GPU instance. */
static unsigned long long memory_bytes(struct gpu *g, nvmlDevice_t device) {
    struct ref r = ref_of(device.handle);
    unsigned long long mib = g->memory_mib;
    if (r.kind == KIND_MIG_DEVICE) {
        struct profile *p = profile_by_id(g, find_instance(g, r.instance)->profile_id);
        mib = p != NULL ? p->memory_mib : 0;
    }
    return mib << 20;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    BEGIN_GPU(s, g, device);
    *memory = (nvmlMemory_t){.total = memory_bytes(g, device)};
    memory->free = memory->total;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    BEGIN_GPU(s, g, device);
    if (memory->version != nvmlMemory_v2)
        return end(&s, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory->total = memory->free = memory_bytes(g, device);
    memory->reserved = memory->used = 0;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch) {
    BEGIN_GPU(s, g, device);
    *arch = g->arch;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand) {
    BEGIN_GPU(s, g, device);
    *brand = strncmp(g->name, "Tesla", 5) == 0 ? NVML_BRAND_TESLA : NVML_BRAND_NVIDIA;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    BEGIN_GPU(s, g, device);
    *major = (int)g->major;
    *minor = (int)g->minor;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    BEGIN_GPU(s, g, device);
    (void)g;
    *mode = NVML_FEATURE_ENABLED;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) {
    BEGIN_GPU(s, g, device);
    (void)g;
    *mode = NVML_COMPUTEMODE_DEFAULT;
    return end(&s, NVML_SUCCESS);
}

/* Health is not simulated: these exist, so that a client that asks is told so and does not die of a missing symbol. */
#define NOT_SUPPORTED(name, ...) \
    EXPORT nvmlReturn_t name(__VA_ARGS__) { return NVML_ERROR_NOT_SUPPORTED; }
#pragma GCC diagnostic ignored "-Wunused-parameter"
NOT_SUPPORTED(nvmlDeviceGetNvLinkState, nvmlDevice_t d, unsigned int l, nvmlEnableState_t *a)
NOT_SUPPORTED(nvmlDeviceGetNvLinkErrorCounter, nvmlDevice_t d, unsigned int l, nvmlNvLinkErrorCounter_t c, unsigned long long *v)
NOT_SUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2, nvmlDevice_t d, unsigned int l, nvmlPciInfo_t *p)
NOT_SUPPORTED(nvmlDeviceGetGpuFabricInfoV, nvmlDevice_t d, nvmlGpuFabricInfoV_t *i)
NOT_SUPPORTED(nvmlDeviceGetEccMode, nvmlDevice_t d, nvmlEnableState_t *c, nvmlEnableState_t *p)
NOT_SUPPORTED(nvmlDeviceGetTotalEccErrors, nvmlDevice_t d, nvmlMemoryErrorType_t t, nvmlEccCounterType_t c, unsigned long long *n)
NOT_SUPPORTED(nvmlDeviceGetRemappedRows, nvmlDevice_t d, unsigned int *c, unsigned int *u, unsigned int *p, unsigned int *f)
NOT_SUPPORTED(nvmlDeviceGetCurrentClocksEventReasons, nvmlDevice_t d, unsigned long long *r)
NOT_SUPPORTED(nvmlDeviceGetTemperature, nvmlDevice_t d, nvmlTemperatureSensors_t t, unsigned int *v)
NOT_SUPPORTED(nvmlDeviceGetSupportedEventTypes, nvmlDevice_t d, unsigned long long *t)
NOT_SUPPORTED(nvmlDeviceRegisterEvents, nvmlDevice_t d, unsigned long long t, nvmlEventSet_t s)
NOT_SUPPORTED(nvmlDeviceGetFieldValues, nvmlDevice_t d, int n, nvmlFieldValue_t *v)
NOT_SUPPORTED(nvmlDeviceGetTopologyCommonAncestor, nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *l)
NOT_SUPPORTED(nvmlEventSetCreate, nvmlEventSet_t *s)
NOT_SUPPORTED(nvmlEventSetWait_v2, nvmlEventSet_t s, nvmlEventData_t *d, unsigned int ms)
NOT_SUPPORTED(nvmlEventSetFree, nvmlEventSet_t s)
