//! Reads and sets the IPv4 addresses of network links.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

/// Returns the IPv4 addresses of all links.
pub fn addresses() -> Vec<String> {
    let mut found = Vec::new();
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` is filled by the call, walked while it lives, and freed once. Addresses are
    // read only where their family says what they are.
    unsafe {
        if libc::getifaddrs(&mut list) != 0 {
            return found;
        }
        let mut at = list;
        while let Some(entry) = at.as_ref() {
            if let Some(address) = entry.ifa_addr.as_ref()
                && i32::from(address.sa_family) == libc::AF_INET
            {
                let address = std::ptr::read_unaligned(entry.ifa_addr.cast::<libc::sockaddr_in>());
                found.push(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).to_string());
            }
            at = entry.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    found
}

/// Brings a link up, after setting its address (such as `10.213.0.2/24`) if one is given.
pub fn set_up(link: &str, address: Option<&str>) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    if let Some(text) = address {
        let bad = || io::Error::new(io::ErrorKind::InvalidInput, format!("address '{text}'"));
        let (address, bits) = text.split_once('/').ok_or_else(bad)?;
        let address: Ipv4Addr = address.parse().map_err(|_| bad())?;
        let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32).ok_or_else(bad)?;
        let mask = Ipv4Addr::from(u32::MAX.checked_shl(32 - bits).unwrap_or(0));
        set(&socket, link, libc::SIOCSIFADDR, address)?;
        set(&socket, link, libc::SIOCSIFNETMASK, mask)?;
    }
    let mut request = request(link)?;
    // SAFETY: the structure is an ifreq with a terminated name; the kernel fills and reads it.
    let done = unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &mut request) == 0 && {
            request.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
            libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) == 0
        }
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn request(link: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an all-zero ifreq is valid, and its name is then empty and terminated.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if link.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("link '{link}'")));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(link.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn set(socket: &UdpSocket, link: &str, what: libc::c_ulong, value: Ipv4Addr) -> io::Result<()> {
    let mut request = request(link)?;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(value).to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: a sockaddr_in is as large as a sockaddr; the structure lives through the call.
    let done = unsafe {
        request.ifr_ifru.ifru_addr =
            std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(address);
        libc::ioctl(socket.as_raw_fd(), what as _, &request)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn loopback_is_among_the_addresses() {
        assert!(super::addresses().contains(&"127.0.0.1".to_owned()));
        assert!(super::set_up("no-such-link", None).is_err());
        assert!(super::set_up("a-name-that-is-too-long", None).is_err());
    }
}
