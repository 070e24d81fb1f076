// For tests: the private books of the redirector and of the simulated resource manager, to compare them.
#pragma once

#include "shim/preload/state.h"
#include "sim/rm/resource_manager.h"

namespace vuda::sim {

// Reads a private member without changing its class: both sides keep their books private, and comparing books is this
// test's whole point.  An explicit instantiation may name private members ([temp.spec.general]).
template <auto kMember>
struct RevealState {
    friend auto& books_of(shim::Redirector& redirector) { return *(redirector.*kMember); }
};
auto& books_of(shim::Redirector& redirector);
template struct RevealState<&shim::Redirector::state_>;

template <auto kMember>
struct RevealClients {
    friend auto& clients_of(ResourceManager& manager) { return manager.*kMember; }
};
auto& clients_of(ResourceManager& manager);
template struct RevealClients<&ResourceManager::clients_>;

template <auto kMember>
struct RevealFiles {
    friend auto& files_of(ResourceManager& manager) { return manager.*kMember; }
};
auto& files_of(ResourceManager& manager);
template struct RevealFiles<&ResourceManager::files_>;

}  // namespace vuda::sim
