/* Reads and writes the state file, and turns handles into what they are about. */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char *const mode_names[] = {"none", "at-once", "after-reset"};

static void copy_text(char to[TEXT], const char *from) { snprintf(to, TEXT, "%s", from); }

static bool parse_profile(struct gpu *g, const char *rest) {
    if (g->profile_count == MAX_PROFILES)
        return false;
    struct profile *p = &g->profiles[g->profile_count++];
    return sscanf(rest, "%u %u %u %u %u %u %u %u %u %u %u %95s", &p->index, &p->id, &p->slices, &p->size, &p->memory_mib,
                  &p->max, &p->sm, &p->copy, &p->decoder, &p->jpeg, &p->ofa, p->name) == 12;
}

static bool parse_start(struct gpu *g, const char *rest) {
    if (g->profile_count == 0)
        return false;
    struct profile *p = &g->profiles[g->profile_count - 1];
    return p->start_count < MAX_STARTS && sscanf(rest, "%u", &p->starts[p->start_count++]) == 1;
}

static bool parse_instance(struct gpu *g, const char *rest) {
    if (g->instance_count == MAX_INSTANCES)
        return false;
    struct instance *in = &g->instances[g->instance_count++];
    return sscanf(rest, "%u %u %u %u", &in->id, &in->profile_id, &in->start, &in->size) == 4;
}

static bool parse_compute(struct gpu *g, const char *rest) {
    if (g->instance_count == 0)
        return false;
    struct instance *in = &g->instances[g->instance_count - 1];
    if (in->compute_count == MAX_COMPUTE)
        return false;
    struct compute *c = &in->compute[in->compute_count++];
    return sscanf(rest, "%u %u %u %u", &c->id, &c->profile, &c->start, &c->size) == 4;
}

static bool parse_mode(struct gpu *g, const char *rest) {
    for (unsigned i = 0; i < sizeof mode_names / sizeof *mode_names; i++)
        if (strcmp(rest, mode_names[i]) == 0) {
            g->mode = (enum mode_change)i;
            return true;
        }
    return false;
}

static bool parse_gpu_line(struct gpu *g, const char *word, const char *rest) {
    if (strcmp(word, "name") == 0)
        return copy_text(g->name, rest), true;
    if (strcmp(word, "bus") == 0)
        return copy_text(g->bus, rest), true;
    if (strcmp(word, "board") == 0)
        return copy_text(g->board, rest), true;
    if (strcmp(word, "memory") == 0)
        return sscanf(rest, "%llu", &g->memory_mib) == 1;
    if (strcmp(word, "arch") == 0)
        return sscanf(rest, "%u %u %u %95s", &g->arch, &g->major, &g->minor, g->pci_id) == 4;
    if (strcmp(word, "mig") == 0)
        return sscanf(rest, "%u %u %u", &g->mig, &g->pending, &g->created) == 3;
    if (strcmp(word, "mode") == 0)
        return parse_mode(g, rest);
    if (strcmp(word, "profile") == 0)
        return parse_profile(g, rest);
    if (strcmp(word, "start") == 0)
        return parse_start(g, rest);
    if (strcmp(word, "instance") == 0)
        return parse_instance(g, rest);
    if (strcmp(word, "compute") == 0)
        return parse_compute(g, rest);
    return false;
}

static bool parse_line(struct state *s, char *line) {
    line[strcspn(line, "\n")] = '\0';
    char *rest = strchr(line, ' ');
    if (rest == NULL)
        return false;
    *rest++ = '\0';
    if (strcmp(line, "driver") == 0)
        return copy_text(s->driver, rest), true;
    if (strcmp(line, "nvml") == 0)
        return copy_text(s->nvml, rest), true;
    if (strcmp(line, "cuda") == 0)
        return sscanf(rest, "%d", &s->cuda) == 1;
    if (strcmp(line, "fault") == 0) {
        if (s->fault_count == MAX_FAULTS)
            return false;
        struct fault *f = &s->faults[s->fault_count++];
        return sscanf(rest, "%u %u %95s", &f->gpu, &f->n, f->name) == 3;
    }
    if (strcmp(line, "gpu") == 0) {
        if (s->gpu_count == MAX_GPUS)
            return false;
        copy_text(s->gpus[s->gpu_count++].uuid, rest);
        return true;
    }
    return s->gpu_count > 0 && parse_gpu_line(&s->gpus[s->gpu_count - 1], line, rest);
}

static bool read_state(struct state *s, const char *path) {
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    char line[256];
    bool ok = true;
    while (ok && fgets(line, sizeof line, f) != NULL)
        ok = parse_line(s, line);
    fclose(f);
    return ok;
}

static void print_gpu(FILE *f, const struct gpu *g) {
    fprintf(f, "gpu %s\nname %s\nbus %s\nboard %s\nmemory %llu\n", g->uuid, g->name, g->bus, g->board, g->memory_mib);
    fprintf(f, "arch %u %u %u %s\nmig %u %u %u\nmode %s\n", g->arch, g->major, g->minor, g->pci_id, g->mig, g->pending,
            g->created, mode_names[g->mode]);
    for (unsigned i = 0; i < g->profile_count; i++) {
        const struct profile *p = &g->profiles[i];
        fprintf(f, "profile %u %u %u %u %u %u %u %u %u %u %u %s\n", p->index, p->id, p->slices, p->size, p->memory_mib, p->max,
                p->sm, p->copy, p->decoder, p->jpeg, p->ofa, p->name);
        for (unsigned k = 0; k < p->start_count; k++)
            fprintf(f, "start %u\n", p->starts[k]);
    }
    for (unsigned i = 0; i < g->instance_count; i++) {
        const struct instance *in = &g->instances[i];
        fprintf(f, "instance %u %u %u %u\n", in->id, in->profile_id, in->start, in->size);
        for (unsigned k = 0; k < in->compute_count; k++)
            fprintf(f, "compute %u %u %u %u\n", in->compute[k].id, in->compute[k].profile, in->compute[k].start,
                    in->compute[k].size);
    }
}

/* Written beside and renamed, so that nobody ever reads half of it, lock or no lock. */
static bool write_state(const struct state *s, const char *path) {
    char tmp[4096];
    if (snprintf(tmp, sizeof tmp, "%s.%d", path, (int)getpid()) >= (int)sizeof tmp)
        return false;
    FILE *f = fopen(tmp, "we");
    if (f == NULL)
        return false;
    fprintf(f, "driver %s\nnvml %s\ncuda %d\n", s->driver, s->nvml, s->cuda);
    for (unsigned i = 0; i < s->fault_count; i++)
        fprintf(f, "fault %u %u %s\n", s->faults[i].gpu, s->faults[i].n, s->faults[i].name);
    for (unsigned i = 0; i < s->gpu_count; i++)
        print_gpu(f, &s->gpus[i]);
    bool written = ferror(f) == 0;
    return fclose(f) == 0 && written && rename(tmp, path) == 0;
}

nvmlReturn_t begin(struct session *s) {
    memset(s, 0, sizeof *s);
    const char *path = getenv("NVML_STATE_FILE");
    char lock[4096];
    if (path == NULL || snprintf(lock, sizeof lock, "%s.lock", path) >= (int)sizeof lock)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    s->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (s->lock < 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    int locked;
    while ((locked = flock(s->lock, LOCK_EX)) != 0 && errno == EINTR)
        ;
    if (locked == 0 && read_state(&s->state, path))
        return NVML_SUCCESS;
    close(s->lock);
    return NVML_ERROR_DRIVER_NOT_LOADED;
}

nvmlReturn_t end(struct session *s, nvmlReturn_t result) {
    if (s->changed && !write_state(&s->state, getenv("NVML_STATE_FILE")))
        result = NVML_ERROR_UNKNOWN;
    close(s->lock);
    return result;
}

void *handle_of(enum kind kind, unsigned gpu, unsigned instance, unsigned compute) {
    return (void *)(uintptr_t)((uintptr_t)kind << 24 | gpu << 16 | instance << 8 | compute);
}

struct ref ref_of(const void *handle) {
    uintptr_t h = (uintptr_t)handle;
    return (struct ref){(enum kind)(h >> 24), h >> 16 & 0xff, h >> 8 & 0xff, h & 0xff};
}

struct gpu *find_gpu(struct state *s, nvmlDevice_t device) {
    struct ref r = ref_of(device.handle);
    if ((r.kind != KIND_GPU && r.kind != KIND_MIG_DEVICE) || r.gpu >= s->gpu_count)
        return NULL;
    struct gpu *g = &s->gpus[r.gpu];
    if (r.kind == KIND_GPU)
        return g;
    struct instance *in = find_instance(g, r.instance);
    return in != NULL && find_compute(in, r.compute) != NULL ? g : NULL;
}

struct gpu *find_whole_gpu(struct state *s, nvmlDevice_t device) {
    return ref_of(device.handle).kind == KIND_GPU ? find_gpu(s, device) : NULL;
}

struct instance *find_live(struct state *s, nvmlGpuInstance_t instance, struct gpu **g) {
    struct ref r = ref_of(instance.handle);
    if (r.kind != KIND_GPU_INSTANCE || r.gpu >= s->gpu_count)
        return NULL;
    *g = &s->gpus[r.gpu];
    return find_instance(*g, r.instance);
}

struct instance *find_instance(struct gpu *g, unsigned id) {
    for (unsigned i = 0; i < g->instance_count; i++)
        if (g->instances[i].id == id)
            return &g->instances[i];
    return NULL;
}

struct compute *find_compute(struct instance *in, unsigned id) {
    for (unsigned i = 0; i < in->compute_count; i++)
        if (in->compute[i].id == id)
            return &in->compute[i];
    return NULL;
}

struct profile *profile_by_id(struct gpu *g, unsigned id) {
    for (unsigned i = 0; i < g->profile_count; i++)
        if (g->profiles[i].id == id)
            return &g->profiles[i];
    return NULL;
}

struct profile *profile_by_index(struct gpu *g, unsigned index) {
    for (unsigned i = 0; i < g->profile_count; i++)
        if (g->profiles[i].index == index)
            return &g->profiles[i];
    return NULL;
}
