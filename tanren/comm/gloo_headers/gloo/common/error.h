// Stands in for the header of this name, which libtorch does not ship: what c10d's Gloo class
// declares with, and no more. Gloo itself is inside libtorch.
#pragma once
