#include "daemon/control/address.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/text.h"

namespace tutti {
namespace {

// Routed like any Internet address; nothing is ever sent there (RFC 5737).
constexpr const char* kOutside = "192.0.2.1";

bool is_loopback(const SocketAddress& address) {
  const std::string numeric = address.numeric().host;
  return numeric.starts_with("127.") || numeric == "::1";
}

enum class Place { here, elsewhere, unknown };

// Only this machine's own addresses can be bound.
Place place_of(const SocketAddress& address) {
  const Fd socket(::socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.valid() && bind(socket.get(), address.get(), address.bytes) == 0) return Place::here;
  const bool is_others = socket.valid() && errno == EADDRNOTAVAIL && !is_loopback(address);
  return is_others ? Place::elsewhere : Place::unknown;
}

// The places of all that a name leads to.
std::vector<Place> places_of(const Address& address, const Names& names) {
  std::vector<Place> places;
  for (const SocketAddress& one : names.addresses_of(address.host)) places.push_back(place_of(one));
  return places;
}

bool is_local(const Address& address, const Names& names) {
  return std::ranges::count(places_of(address, names), Place::here) != 0;
}

bool leads_here_and_elsewhere(const Address& address, const Names& names) {
  const std::vector<Place> places = places_of(address, names);
  return std::ranges::count(places, Place::here) != 0 &&
         std::ranges::count(places, Place::elsewhere) != 0;
}

bool has_wildcard(const std::vector<SocketAddress>& addresses) {
  return std::ranges::any_of(addresses, [](const SocketAddress& address) {
    const std::string numeric = address.numeric().host;
    return numeric == "0.0.0.0" || numeric == "::";
  });
}

// Returns "" if there is no route to `host`. Connecting a datagram socket sends nothing, and the
// port has no part in the route.
std::string local_host_toward(const std::string& host, const Names& names) {
  for (const SocketAddress& one : names.addresses_of(host)) {
    const Fd socket(::socket(one.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket.valid() && connect(socket.get(), one.get(), one.bytes) == 0)
      return own_address(socket.get()).numeric().host;
  }
  return {};
}

bool is_usable(const ifaddrs& one) {
  const bool inet = one.ifa_addr != nullptr && one.ifa_addr->sa_family == AF_INET;
  return inet && (one.ifa_flags & IFF_UP) != 0 && (one.ifa_flags & IFF_LOOPBACK) == 0;
}

// For the first interface that others can reach; "" if there is none.
std::string any_local_host() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next)
    if (is_usable(*one)) return copy_of(*one->ifa_addr).numeric().host;
  return {};
}

// What will not do, whatever becomes of the machine; what will not as its names and interfaces are
// now; what it lacks yet.
Status wrong(const std::string& setting, const std::string& value, const std::string& why) {
  return invalid_argument("setting " + setting + " = '" + value + "': " + why);
}
Status wrong_here(const std::string& setting, const std::string& value, const std::string& why) {
  return failed_precondition("setting " + setting + " = '" + value + "': " + why);
}
Status not_yet(const std::string& setting, const std::string& value, const std::string& why) {
  return unavailable("setting " + setting + " = '" + value + "': " + why);
}

Result<Address> parse_setting(const std::string& setting, const std::string& value) {
  const Result<Address> address = parse_address(value);
  if (address.ok()) return address;
  return invalid_argument("setting " + setting + " = " + address.status().message());
}

Status check_bindable(const std::string& setting, const std::string& value, const Address& address,
                      const Names& names) {
  if (names.addresses_of(address.host).empty())
    return not_yet(setting, value, "the name has no address; give an address of this machine");
  if (is_local(address, names)) return {};
  return not_yet(setting, value, "this is no address of this machine; `ip address` lists those");
}

// That others reach a loopback address, which they do if they are this machine.
Status check_loopback(const std::string& listen, const std::string& setting,
                      const std::string& other, const Names& names) {
  const Result<Address> remote = parse_setting(setting, other);
  if (!remote.ok()) return remote.status();
  if (names.addresses_of(remote->host).empty())
    return not_yet("listen", listen,
                   "only this machine reaches that, and " + setting + " = " + other +
                       " has no address to tell whether that is this machine; give the address of "
                       "this machine that the others reach");
  if (is_local(*remote, names)) return {};
  return wrong_here("listen", listen,
                    "only this machine reaches that, and " + setting + " = " + other +
                        " is another; give the address of this machine that the others reach");
}

Status check_data_address(const std::string& value, const Names& names) {
  if (value.empty()) return {};
  const Result<Address> parsed = parse_address(value + ":0");
  if (!parsed.ok()) return wrong("data_address", value, "expected an address without a port");
  if (is_wildcard(parsed->host, names))
    return wrong("data_address", value,
                 "other hosts cannot dial this; give the address of this machine that they reach, "
                 "or leave it empty");
  return check_bindable("data_address", value, *parsed, names);
}

}  // namespace

const std::vector<SocketAddress>& Names::addresses_of(const std::string& host) const {
  const auto [entry, is_new] = found_.try_emplace(host);
  if (!is_new) return entry->second;
  Result<std::vector<SocketAddress>> found = look_up_(Address{.host = host, .port = 0}.to_string());
  if (found.ok()) entry->second = *std::move(found);
  return entry->second;
}

bool is_wildcard(const std::string& host, const Names& names) {
  return has_wildcard(names.addresses_of(host));
}

bool is_wildcard_number(const std::string& host) {
  const auto number = resolve(Address{.host = host, .port = 0}.to_string(), false);
  return number.ok() && has_wildcard(*number);
}

Address reachable(const Address& listen, const std::string& toward, const Names& names) {
  if (!is_wildcard(listen.host, names)) return listen;
  const Result<Address> target = parse_address(toward);
  std::string host = target.ok() ? local_host_toward(target->host, names) : "";
  if (host.empty()) host = local_host_toward(kOutside, names);
  if (!host.empty()) return {.host = host, .port = listen.port};
  const std::string any = any_local_host();  // There is no route out, as on closed networks.
  return {.host = any.empty() ? "127.0.0.1" : any, .port = listen.port};
}

bool is_loopback(const Address& address, const Names& names) {
  const std::vector<SocketAddress>& all = names.addresses_of(address.host);
  return !all.empty() &&
         std::ranges::all_of(all, [](const SocketAddress& one) { return is_loopback(one); });
}

bool is_self(const Address& target, const Address& listen, const Names& names) {
  if (target.port != listen.port || leads_here_and_elsewhere(target, names)) return false;
  if (is_wildcard(listen.host, names)) return is_local(target, names);
  return std::ranges::any_of(names.addresses_of(target.host), [&](const SocketAddress& one) {
    return std::ranges::any_of(names.addresses_of(listen.host), [&](const SocketAddress& other) {
      return one.numeric().host == other.numeric().host;
    });
  });
}

Status check_coordinator(const std::string& coordinator, const Names& names) {
  const Result<Address> address = parse_setting("coordinator", coordinator);
  if (!address.ok()) return address.status();
  return leads_here_and_elsewhere(*address, names)
             ? wrong_here("coordinator", coordinator, "it leads to several machines; name one")
             : Status();
}

Status check_addresses(const std::string& listen, const std::string& data_address,
                       const std::string& coordinator, const std::string& etcd,
                       const Names& names) {
  const Result<Address> own = parse_setting("listen", listen);
  if (!own.ok()) return own.status();
  if (Status local = check_bindable("listen", listen, *own, names); !local.ok()) return local;
  if (Status data = check_data_address(data_address, names); !data.ok()) return data;
  if (!coordinator.empty())
    if (Status one = check_coordinator(coordinator, names); !one.ok()) return one;
  if (!is_loopback(*own, names)) return {};
  if (!coordinator.empty())
    if (Status here = check_loopback(listen, "coordinator", coordinator, names); !here.ok())
      return here;
  for (const std::string& member : etcd.empty() ? std::vector<std::string>() : split(etcd, ','))
    if (Status here = check_loopback(listen, "etcd", member, names); !here.ok()) return here;
  return {};
}

}  // namespace tutti
