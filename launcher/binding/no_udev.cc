// hwloc's static archive asks libudev for the names of disks, which nothing here
// looks at. Without these stand-ins, every start of ddlaunch would load libudev.
// hwloc takes "there is no udev" as an answer (topology-linux.c). Linked only
// together with that archive: see deploy/cmake/Dependencies.cmake.

extern "C" {

struct udev;
struct udev_device;

udev* udev_new() {
  return nullptr;
}
udev* udev_unref(udev* /*unused*/) {
  return nullptr;
}
udev_device* udev_device_new_from_subsystem_sysname(udev* /*unused*/, const char* /*unused*/,
                                                    const char* /*unused*/) {
  return nullptr;
}
udev_device* udev_device_unref(udev_device* /*unused*/) {
  return nullptr;
}
const char* udev_device_get_property_value(udev_device* /*unused*/, const char* /*unused*/) {
  return nullptr;
}

}  // extern "C"
