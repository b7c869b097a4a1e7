/* MIG mode, GPU instance profiles and GPU instances. */
#include "state.h"

#include <stdio.h>
#include <string.h>

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    BEGIN_GPU(s, g, device);
    if (g->mode == MODE_NONE)
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    *current = g->mig;
    *pending = g->pending;
    return end(&s, NVML_SUCCESS);
}

/* nvml.h: "On certain platforms like pass-through virtualization ... VM reboot is required. activationStatus would return
 * NVML_ERROR_RESET_REQUIRED", and NVML_ERROR_IN_USE where the device is not idle. */
EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation) {
    BEGIN(s);
    struct gpu *g = find_whole_gpu(&s.state, device);
    if (g == NULL || mode > NVML_DEVICE_MIG_ENABLE || activation == NULL)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    if (g->mode == MODE_NONE)
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    s.changed = true;
    g->pending = mode;
    *activation = NVML_SUCCESS;
    if (g->mig == mode)
        return end(&s, NVML_SUCCESS);
    if (g->instance_count > 0)
        *activation = NVML_ERROR_IN_USE;
    else if (g->mode == MODE_AFTER_RESET)
        *activation = NVML_ERROR_RESET_REQUIRED;
    else
        g->mig = mode;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int index,
                                                        nvmlGpuInstanceProfileInfo_t *info) {
    BEGIN_GPU(s, g, device);
    if (index >= NVML_GPU_INSTANCE_PROFILE_COUNT)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    struct profile *p = profile_by_index(g, index);
    if (p == NULL)
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    *info = (nvmlGpuInstanceProfileInfo_t){
        .id = p->id, .sliceCount = p->slices, .instanceCount = p->max, .multiprocessorCount = p->sm,
        .copyEngineCount = p->copy, .decoderCount = p->decoder, .jpegCount = p->jpeg, .ofaCount = p->ofa,
        .memorySizeMB = p->memory_mib,
    };
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int index,
                                                         nvmlGpuInstanceProfileInfo_v2_t *info) {
    BEGIN_GPU(s, g, device);
    if (index >= NVML_GPU_INSTANCE_PROFILE_COUNT)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    if (info->version != nvmlGpuInstanceProfileInfo_v2)
        return end(&s, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    struct profile *p = profile_by_index(g, index);
    if (p == NULL)
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    *info = (nvmlGpuInstanceProfileInfo_v2_t){
        .version = info->version, .id = p->id, .sliceCount = p->slices, .instanceCount = p->max,
        .multiprocessorCount = p->sm, .copyEngineCount = p->copy, .decoderCount = p->decoder, .jpegCount = p->jpeg,
        .ofaCount = p->ofa, .memorySizeMB = p->memory_mib,
    };
    snprintf(info->name, sizeof info->name, "MIG %.80s", p->name);
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
                                                                  nvmlGpuInstancePlacement_t *placements, unsigned int *count) {
    BEGIN_GPU(s, g, device);
    struct profile *p = profile_by_id(g, id);
    if (p == NULL)
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    for (unsigned i = 0; placements != NULL && i < p->start_count; i++)
        placements[i] = (nvmlGpuInstancePlacement_t){p->starts[i], p->size};
    *count = p->start_count;
    return end(&s, NVML_SUCCESS);
}

static bool overlaps(const struct instance *in, unsigned start, unsigned size) {
    return start < in->start + in->size && in->start < start + size;
}

static unsigned count_of(const struct gpu *g, const struct profile *p) {
    unsigned n = 0;
    for (unsigned i = 0; i < g->instance_count; i++)
        n += g->instances[i].profile_id == p->id;
    return n;
}

static bool is_free(const struct gpu *g, const struct profile *p, unsigned start) {
    if (g->instance_count == MAX_INSTANCES || count_of(g, p) >= p->max)
        return false;
    for (unsigned i = 0; i < g->instance_count; i++)
        if (overlaps(&g->instances[i], start, p->size))
            return false;
    return true;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int *count) {
    BEGIN_GPU(s, g, device);
    struct profile *p = profile_by_id(g, id);
    if (p == NULL || !g->mig)
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    unsigned n = 0, next = 0, left = p->max - count_of(g, p);
    for (unsigned i = 0; i < p->start_count && n < left; i++)
        if (p->starts[i] >= next && is_free(g, p, p->starts[i])) {
            n++;
            next = p->starts[i] + p->size;
        }
    *count = n;
    return end(&s, NVML_SUCCESS);
}

static bool is_lost(const struct state *s, unsigned gpu, unsigned nth) {
    for (unsigned i = 0; i < s->fault_count; i++)
        if (strcmp(s->faults[i].name, "lose-instance") == 0 && s->faults[i].gpu == gpu && s->faults[i].n == nth)
            return true;
    return false;
}

static unsigned unused_id(struct gpu *g) {
    unsigned id = 1;
    while (find_instance(g, id) != NULL)
        id++;
    return id;
}

/* Makes the instance at a start that is known to be free, or only says so where the fault lose-instance is due. */
static void *create_at(struct state *s, unsigned gpu, struct profile *p, unsigned start) {
    struct gpu *g = &s->gpus[gpu];
    if (is_lost(s, gpu, ++g->created))
        return handle_of(KIND_LOST_INSTANCE, gpu, (unsigned)(p - g->profiles), 0);
    unsigned id = unused_id(g);
    g->instances[g->instance_count++] = (struct instance){.id = id, .profile_id = p->id, .start = start, .size = p->size};
    return handle_of(KIND_GPU_INSTANCE, gpu, id, 0);
}

static nvmlReturn_t create(nvmlDevice_t device, unsigned id, const nvmlGpuInstancePlacement_t *at, nvmlGpuInstance_t *instance) {
    BEGIN(s);
    struct gpu *g = find_whole_gpu(&s.state, device);
    if (g == NULL || instance == NULL)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    if (!g->mig)
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    struct profile *p = profile_by_id(g, id);
    if (p == NULL || (at != NULL && at->size != p->size))
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    bool permitted = at == NULL;
    for (unsigned i = 0; i < p->start_count; i++) {
        if (at != NULL && at->start != p->starts[i])
            continue;
        permitted = true;
        if (is_free(g, p, p->starts[i])) {
            s.changed = true;
            instance->handle = create_at(&s.state, ref_of(device.handle).gpu, p, p->starts[i]);
            return end(&s, NVML_SUCCESS);
        }
    }
    return end(&s, permitted ? NVML_ERROR_INSUFFICIENT_RESOURCES : NVML_ERROR_INVALID_ARGUMENT);
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance) {
    return create(device, id, NULL, instance);
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id,
                                                             const nvmlGpuInstancePlacement_t *placement,
                                                             nvmlGpuInstance_t *instance) {
    return placement == NULL ? NVML_ERROR_INVALID_ARGUMENT : create(device, id, placement, instance);
}

EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance) {
    BEGIN_INSTANCE(s, g, in, instance);
    if (in->compute_count > 0)
        return end(&s, NVML_ERROR_IN_USE);
    *in = g->instances[--g->instance_count];
    s.changed = true;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instances,
                                              unsigned int *count) {
    BEGIN(s);
    struct gpu *g = find_whole_gpu(&s.state, device);
    if (g == NULL || instances == NULL || profile_by_id(g, id) == NULL)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    if (!g->mig)
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    *count = 0;
    for (unsigned i = 0; i < g->instance_count; i++)
        if (g->instances[i].profile_id == id)
            instances[(*count)++].handle = handle_of(KIND_GPU_INSTANCE, ref_of(device.handle).gpu, g->instances[i].id, 0);
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance) {
    BEGIN(s);
    struct gpu *g = find_whole_gpu(&s.state, device);
    if (g == NULL)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    if (!g->mig)
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    if (find_instance(g, id) == NULL)
        return end(&s, NVML_ERROR_NOT_FOUND);
    instance->handle = handle_of(KIND_GPU_INSTANCE, ref_of(device.handle).gpu, id, 0);
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    BEGIN_INSTANCE(s, g, in, instance);
    (void)g;
    *info = (nvmlGpuInstanceInfo_t){.id = in->id, .profileId = in->profile_id, .placement = {in->start, in->size}};
    info->device.handle = handle_of(KIND_GPU, ref_of(instance.handle).gpu, 0, 0);
    return end(&s, NVML_SUCCESS);
}
