/* One machine's state, as the file that NVML_STATE_FILE names holds it (../encoding.go describes its lines). */
#ifndef GPUFLEET_TEST_NVML_STATE_H
#define GPUFLEET_TEST_NVML_STATE_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stdbool.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum { MAX_GPUS = 16, MAX_PROFILES = 18, MAX_STARTS = 16, MAX_INSTANCES = 16, MAX_COMPUTE = 8, MAX_FAULTS = 16, TEXT = 96 };

enum mode_change { MODE_NONE, MODE_AT_ONCE, MODE_AFTER_RESET };

struct profile {
    unsigned index, id, slices, size, memory_mib, max, sm, copy, decoder, jpeg, ofa;
    char name[TEXT];
    unsigned starts[MAX_STARTS], start_count;
};

struct compute {
    unsigned id, profile, start, size;
};

struct instance {
    unsigned id, profile_id, start, size;
    struct compute compute[MAX_COMPUTE];
    unsigned compute_count;
};

struct gpu {
    char uuid[TEXT], name[TEXT], bus[TEXT], board[TEXT], pci_id[TEXT];
    unsigned long long memory_mib;
    unsigned arch, major, minor;
    unsigned mig, pending, created;
    enum mode_change mode;
    struct profile profiles[MAX_PROFILES];
    unsigned profile_count;
    struct instance instances[MAX_INSTANCES];
    unsigned instance_count;
};

struct fault {
    unsigned gpu, n;
    char name[TEXT];
};

struct state {
    char driver[TEXT], nvml[TEXT];
    int cuda;
    struct fault faults[MAX_FAULTS];
    unsigned fault_count;
    struct gpu gpus[MAX_GPUS];
    unsigned gpu_count;
};

/* A session is one call's look at the machine: begin takes the lock and reads the file; end releases it, and writes the
 * file anew first where changed is set. Every begin that returns NVML_SUCCESS needs its end. */
struct session {
    struct state state;
    int lock;
    bool changed;
};

nvmlReturn_t begin(struct session *s);
nvmlReturn_t end(struct session *s, nvmlReturn_t result);

/* Success between nvmlInit and its nvmlShutdown. */
nvmlReturn_t initialised(void);

/* Opens a session where the library is initialised, or returns from the calling function. */
#define BEGIN(s)                                                  \
    struct session s;                                             \
    do {                                                          \
        nvmlReturn_t begun = initialised();                       \
        if (begun == NVML_SUCCESS)                                \
            begun = begin(&s);                                    \
        if (begun != NVML_SUCCESS)                                \
            return begun;                                         \
    } while (0)

/* As BEGIN, and finds the board. */
#define BEGIN_GPU(s, g, device)                                   \
    BEGIN(s);                                                     \
    struct gpu *g = find_gpu(&s.state, device);                   \
    if (g == NULL)                                                \
        return end(&s, NVML_ERROR_INVALID_ARGUMENT)

/* As BEGIN, and finds the GPU instance and its board. */
#define BEGIN_INSTANCE(s, g, in, handle_)                         \
    BEGIN(s);                                                     \
    struct gpu *g = NULL;                                         \
    struct instance *in = find_live(&s.state, handle_, &g);       \
    if (in == NULL)                                               \
        return end(&s, NVML_ERROR_INVALID_ARGUMENT)

/* Handles are numbers in pointers: nothing is kept between calls, and a stale one is found out at its next use. */
enum kind { KIND_GPU = 1, KIND_MIG_DEVICE, KIND_GPU_INSTANCE, KIND_COMPUTE_INSTANCE, KIND_LOST_INSTANCE };

struct ref {
    enum kind kind;
    unsigned gpu, instance, compute; /* instance is a profile's position where kind is KIND_LOST_INSTANCE */
};

void *handle_of(enum kind kind, unsigned gpu, unsigned instance, unsigned compute);
struct ref ref_of(const void *handle);

/* Each finds what the handle is about, or returns NULL. find_gpu takes MIG devices too and gives their board. */
struct gpu *find_gpu(struct state *s, nvmlDevice_t device);
struct gpu *find_whole_gpu(struct state *s, nvmlDevice_t device);
struct instance *find_live(struct state *s, nvmlGpuInstance_t instance, struct gpu **g);
struct instance *find_instance(struct gpu *g, unsigned id);
struct compute *find_compute(struct instance *in, unsigned id);
struct profile *profile_by_id(struct gpu *g, unsigned id);
struct profile *profile_by_index(struct gpu *g, unsigned index);

#endif
