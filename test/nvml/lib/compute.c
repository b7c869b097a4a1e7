/* Compute instances, and the MIG devices that they make. */
#include "state.h"

#include <string.h>

/* Compute slices of NVML_COMPUTE_INSTANCE_PROFILE_*; 0 where the fake has none. A profile's id is its index, as
 * nvidia-smi mig -lcip prints it on A100 and H100. */
static const unsigned compute_slices[NVML_COMPUTE_INSTANCE_PROFILE_COUNT] = {1, 2, 3, 4, 7, 8, 6, 0, 0};

/* The profile of a GPU instance, which the one that was lost answers for too: a driver that lies goes on lying. */
static struct profile *profile_of(struct state *s, nvmlGpuInstance_t instance) {
    struct ref r = ref_of(instance.handle);
    if (r.gpu >= s->gpu_count)
        return NULL;
    struct gpu *g = &s->gpus[r.gpu];
    if (r.kind == KIND_LOST_INSTANCE)
        return r.instance < g->profile_count ? &g->profiles[r.instance] : NULL;
    struct instance *in = r.kind == KIND_GPU_INSTANCE ? find_instance(g, r.instance) : NULL;
    return in != NULL ? profile_by_id(g, in->profile_id) : NULL;
}

static bool offers(const struct profile *p, unsigned compute_profile) {
    return compute_profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT && compute_slices[compute_profile] > 0 &&
           compute_slices[compute_profile] <= p->slices;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int profile,
                                                                 unsigned int engine, nvmlComputeInstanceProfileInfo_t *info) {
    BEGIN(s);
    struct profile *p = profile_of(&s.state, instance);
    if (p == NULL || profile >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT || engine >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    if (!offers(p, profile))
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    unsigned slices = compute_slices[profile];
    *info = (nvmlComputeInstanceProfileInfo_t){
        .id = profile, .sliceCount = slices, .instanceCount = p->slices / slices,
        .multiprocessorCount = p->sm * slices / p->slices, .sharedCopyEngineCount = p->copy,
        .sharedDecoderCount = p->decoder, .sharedJpegCount = p->jpeg, .sharedOfaCount = p->ofa,
    };
    return end(&s, NVML_SUCCESS);
}

static bool is_free(const struct instance *in, unsigned start, unsigned size) {
    for (unsigned i = 0; i < in->compute_count; i++) {
        const struct compute *c = &in->compute[i];
        if (start < c->start + c->size && c->start < start + size)
            return false;
    }
    return in->compute_count < MAX_COMPUTE;
}

static unsigned add_compute(struct instance *in, unsigned profile, unsigned start) {
    unsigned id = 0;
    while (find_compute(in, id) != NULL)
        id++;
    in->compute[in->compute_count++] = (struct compute){id, profile, start, compute_slices[profile]};
    return id;
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int profile,
                                                         nvmlComputeInstance_t *compute) {
    BEGIN(s);
    struct profile *p = profile_of(&s.state, instance);
    if (p == NULL || compute == NULL)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    if (!offers(p, profile))
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    struct ref r = ref_of(instance.handle);
    if (r.kind == KIND_LOST_INSTANCE) {
        compute->handle = (struct nvmlComputeInstance_st *)instance.handle;
        return end(&s, NVML_SUCCESS);
    }
    struct instance *in = find_instance(&s.state.gpus[r.gpu], r.instance);
    for (unsigned start = 0; start + compute_slices[profile] <= p->slices; start++)
        if (is_free(in, start, compute_slices[profile])) {
            compute->handle = handle_of(KIND_COMPUTE_INSTANCE, r.gpu, r.instance, add_compute(in, profile, start));
            s.changed = true;
            return end(&s, NVML_SUCCESS);
        }
    return end(&s, NVML_ERROR_INSUFFICIENT_RESOURCES);
}

/* Finds a compute instance and its GPU instance; NULL where it is gone. */
static struct compute *find(struct state *s, nvmlComputeInstance_t compute, struct instance **in) {
    struct ref r = ref_of(compute.handle);
    if (r.kind != KIND_COMPUTE_INSTANCE || r.gpu >= s->gpu_count)
        return NULL;
    *in = find_instance(&s->gpus[r.gpu], r.instance);
    return *in != NULL ? find_compute(*in, r.compute) : NULL;
}

EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute) {
    BEGIN(s);
    struct instance *in;
    struct compute *c = find(&s.state, compute, &in);
    if (c == NULL)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    *c = in->compute[--in->compute_count];
    s.changed = true;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info) {
    BEGIN(s);
    struct instance *in;
    struct compute *c = find(&s.state, compute, &in);
    if (c == NULL)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    struct ref r = ref_of(compute.handle);
    *info = (nvmlComputeInstanceInfo_t){.id = c->id, .profileId = c->profile, .placement = {c->start, c->size}};
    info->device.handle = handle_of(KIND_GPU, r.gpu, 0, 0);
    info->gpuInstance.handle = handle_of(KIND_GPU_INSTANCE, r.gpu, r.instance, 0);
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int profile,
                                                       nvmlComputeInstance_t *computes, unsigned int *count) {
    BEGIN_INSTANCE(s, g, in, instance);
    (void)g;
    *count = 0;
    struct ref r = ref_of(instance.handle);
    for (unsigned i = 0; i < in->compute_count; i++)
        if (in->compute[i].profile == profile)
            computes[(*count)++].handle = handle_of(KIND_COMPUTE_INSTANCE, r.gpu, r.instance, in->compute[i].id);
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
                                                          nvmlComputeInstance_t *compute) {
    BEGIN_INSTANCE(s, g, in, instance);
    (void)g;
    if (find_compute(in, id) == NULL)
        return end(&s, NVML_ERROR_NOT_FOUND);
    compute->handle = handle_of(KIND_COMPUTE_INSTANCE, ref_of(instance.handle).gpu, in->id, id);
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) {
    BEGIN_GPU(s, g, device);
    (void)g;
    *is = ref_of(device.handle).kind == KIND_MIG_DEVICE;
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    BEGIN_GPU(s, g, device);
    *count = 0;
    for (unsigned i = 0; g->mig && i < g->profile_count; i++)
        if (g->profiles[i].max > *count)
            *count = g->profiles[i].max;
    return end(&s, NVML_SUCCESS);
}

/* A MIG device is a compute instance: a GPU instance without one is no device to anybody. */
EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) {
    BEGIN(s);
    struct gpu *g = find_whole_gpu(&s.state, device);
    if (g == NULL)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    if (g->mode == MODE_NONE)
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    for (unsigned i = 0; i < g->instance_count; i++)
        for (unsigned c = 0; c < g->instances[i].compute_count; c++)
            if (index-- == 0) {
                mig->handle = handle_of(KIND_MIG_DEVICE, ref_of(device.handle).gpu, g->instances[i].id,
                                        g->instances[i].compute[c].id);
                return end(&s, NVML_SUCCESS);
            }
    return end(&s, NVML_ERROR_NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    BEGIN_GPU(s, g, mig);
    (void)g;
    if (ref_of(mig.handle).kind != KIND_MIG_DEVICE)
        return end(&s, NVML_ERROR_INVALID_ARGUMENT);
    device->handle = handle_of(KIND_GPU, ref_of(mig.handle).gpu, 0, 0);
    return end(&s, NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    BEGIN_GPU(s, g, device);
    (void)g;
    *id = ref_of(device.handle).instance;
    return end(&s, ref_of(device.handle).kind == KIND_MIG_DEVICE ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
    BEGIN_GPU(s, g, device);
    (void)g;
    *id = ref_of(device.handle).compute;
    return end(&s, ref_of(device.handle).kind == KIND_MIG_DEVICE ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED);
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    BEGIN_GPU(s, g, device);
    struct ref r = ref_of(device.handle);
    if (r.kind != KIND_MIG_DEVICE)
        return end(&s, NVML_ERROR_NOT_SUPPORTED);
    struct instance *in = find_instance(g, r.instance);
    struct profile *p = profile_by_id(g, in->profile_id);
    if (p == NULL)
        return end(&s, NVML_ERROR_UNKNOWN);
    unsigned slices = find_compute(in, r.compute)->size;
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = p->sm * slices / p->slices, .sharedCopyEngineCount = p->copy,
        .sharedDecoderCount = p->decoder, .sharedJpegCount = p->jpeg, .sharedOfaCount = p->ofa,
        .gpuInstanceSliceCount = p->slices, .computeInstanceSliceCount = slices, .memorySizeMB = p->memory_mib,
    };
    return end(&s, NVML_SUCCESS);
}
