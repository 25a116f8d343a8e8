"""A whole domain of libvirt from what `punctual switch --libvirt` printed for it.

usage: domain.py NAME LISTING KERNEL INITRD COMMAND_LINE CONSOLE"""

import re
import sys
import xml.etree.ElementTree as ET

name, listing, kernel, initrd, command_line, console = sys.argv[1:]
text = open(listing).read()
domains = [ET.fromstring(one) for one in re.findall(r"<domain .*?</domain>", text, re.S)]
domain = next(one for one in domains if one.findtext("name") == name)
# No processor of this machine runs a guest by itself.
domain.set("type", "qemu")
rest = ET.fromstring("""<domain>
  <memory unit='MiB'>512</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type><kernel/><initrd/><cmdline/></os>
  <features><acpi/></features>
  <cpu mode='maximum'/>
  <on_reboot>destroy</on_reboot>
</domain>""")
for tag, value in (("kernel", kernel), ("initrd", initrd), ("cmdline", command_line)):
    rest.find("os").find(tag).text = value
# The schema wants no order among these.
domain.extend(rest)
serial = ET.SubElement(domain.find("devices"), "serial", type="file")
ET.SubElement(serial, "source", path=console)
ET.dump(domain)
