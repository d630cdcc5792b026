// The folder in which NVIDIA's Pix2PixHD keeps its networks: latest_net_G.pth, the generator's
// state_dict, and latest_net_D.pth, the discriminators'. Here their names begin with "generator."
// and "discriminator.". Called by transfer and python_folder.
#pragma once

#include "tanren/checkpoint/weights_file.h"
#include "tanren/interop/new_folder.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

// Whether `folder` has a latest_net_G.pth.
bool is_pix2pixhd_folder(const std::filesystem::path& folder);
// Its latest_net_D.pth, which may be missing: only training needs it.
std::filesystem::path discriminator_file(const std::filesystem::path& folder);

// Reads both networks, under our names. Running statistics of norms are left out, with a remark:
// old versions of torch saved them, but no forward reads them. InputError as read_weights.
StateDict read_pix2pixhd_folder(const std::filesystem::path& folder);

// Writes a model's tensors as a folder of this form, and returns the files' names.
std::vector<std::string> write_pix2pixhd_folder(NewFolder& folder, const TensorMap& tensors);

}  // namespace tanren
