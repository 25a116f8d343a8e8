/* SPDX-License-Identifier: GPL-2.0-only */
/* The types of Linux that the programs use: as much of each as they read. Names and types are those of the
 * kernel (include/linux/sched.h, include/uapi/linux/bpf.h); the loader finds where the running kernel has
 * them. */
#ifndef PUNCTUAL_KERNEL_H
#define PUNCTUAL_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false = 0, true = 1 };
#define NULL ((void *)0)

/* include/uapi/linux/bpf.h */
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_ARRAY = 6 };
enum { BPF_MAP_TYPE_RINGBUF = 27 };
enum { BPF_NOEXIST = 1, BPF_RB_NO_WAKEUP = 1 };
struct bpf_spin_lock {
	__u32 val;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_info {
	u32 cpu;
};
struct task_struct {
	struct thread_info thread_info;
	s32 pid;
	unsigned long jobctl;
	char comm[16];
};

#pragma clang attribute pop
#endif
