// The kernel's numbers for mounts: MS_ for mount(2), ATTR_ for mount_setattr(2).

export const MS_RDONLY = 1;
export const MS_NOSUID = 2;
export const MS_NODEV = 4;
export const MS_NOEXEC = 8;
export const MS_BIND = 4096;
export const MS_REC = 16384;
export const MS_PRIVATE = 1 << 18;

export const ATTR_RDONLY = 1;
export const ATTR_NOSUID = 2;
export const ATTR_NODEV = 4;
export const ATTR_NOEXEC = 8;
