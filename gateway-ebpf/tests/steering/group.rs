//! The listeners of one address, with the program or without.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

use aya::maps::{Array, MapData, PerCpuArray, SockMap};
use aya::programs::SkReuseport;
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use socket2::{Domain, Socket, Type};
use usher_ebpf::steer::{self, Load, Path, Rules, SERVING};

use crate::network::Network;

/// One worker's listening socket for each slot.
pub(crate) struct Group {
    pub(crate) address: SocketAddr,
    pub(crate) listeners: Vec<Option<Socket>>,
    pub(crate) steering: Option<Steering>,
}

/// The program and its maps.
pub(crate) struct Steering {
    loads: Array<MapData, Load>,
    told: Vec<Load>,
    rules: Array<MapData, Rules>,
    tally: PerCpuArray<MapData, u64>,
    ebpf: Ebpf,
}

impl Group {
    /// `workers` listeners that do not block, chosen from by the kernel's hash.
    pub(crate) fn plain(network: &Network, ip: IpAddr, workers: usize) -> Self {
        let mut address = SocketAddr::new(ip, 0);
        let listeners = network.at_server(|| {
            let listener = |_| {
                let socket = listener(address).unwrap();
                address = socket.local_addr().unwrap().as_socket().unwrap();
                Some(socket)
            };
            (0..workers).map(listener).collect()
        });
        Self { address, listeners, steering: None }
    }

    /// The same, chosen from by the program; all workers serve.
    pub(crate) fn steered(network: &Network, ip: IpAddr, workers: usize) -> Self {
        let mut group = Self::plain(network, ip, workers);
        group.steering = Some(Steering::new(&group.listeners));
        group
    }

    pub(crate) fn steering(&mut self) -> &mut Steering {
        self.steering.as_mut().unwrap()
    }

    /// Takes the connection that was just made, wherever it is, and who made it. The worker tells that it has it.
    pub(crate) fn accept(&mut self) -> Option<(usize, Socket, IpAddr)> {
        for (slot, listener) in self.listeners.iter().enumerate() {
            if let Some(Ok((socket, from))) = listener.as_ref().map(Socket::accept) {
                if let Some(steering) = &mut self.steering {
                    steering.tell(slot, |load| load.connections += 1);
                }
                return Some((slot, socket, from.as_socket().unwrap().ip().to_canonical()));
            }
        }
        None
    }

    /// The worker of `slot` has one connection less.
    pub(crate) fn closed(&mut self, slot: usize) {
        if let Some(steering) = &mut self.steering {
            steering.tell(slot, |load| load.connections -= 1);
        }
    }
}

impl Steering {
    fn new(listeners: &[Option<Socket>]) -> Self {
        let mut ebpf = EbpfLoader::new()
            .override_global(steer::EVENTS, &0_u8, true)
            .load(include_bytes_aligned!("../../object/steer.o"))
            .unwrap();
        let mut sockets: SockMap<_> = ebpf.take_map(steer::SOCKETS).unwrap().try_into().unwrap();
        let mut steering = Self {
            loads: ebpf.take_map(steer::LOADS).unwrap().try_into().unwrap(),
            told: vec![Load { state: SERVING, ..Load::default() }; listeners.len()],
            rules: ebpf.take_map(steer::RULES).unwrap().try_into().unwrap(),
            tally: ebpf.take_map(steer::TALLY).unwrap().try_into().unwrap(),
            ebpf,
        };
        for (slot, listener) in listeners.iter().flatten().enumerate() {
            sockets.set(u32::try_from(slot).unwrap(), listener, 0).unwrap();
            steering.tell(slot, |_| ());
        }
        steering.rule(Rules { slots: u32::try_from(listeners.len()).unwrap(), ..Rules::default() });
        let program = steering.program();
        program.load().unwrap();
        program.attach(listeners[0].as_ref().unwrap()).unwrap();
        steering
    }

    fn program(&mut self) -> &mut SkReuseport {
        self.ebpf.program_mut(steer::PROGRAM).unwrap().try_into().unwrap()
    }

    /// Changes what a worker says of itself.
    pub(crate) fn tell(&mut self, slot: usize, change: impl FnOnce(&mut Load)) {
        change(&mut self.told[slot]);
        self.loads.set(u32::try_from(slot).unwrap(), self.told[slot], 0).unwrap();
    }

    /// Sets the rules.
    pub(crate) fn rule(&mut self, rules: Rules) {
        self.rules.set(0, rules, 0).unwrap();
    }

    /// How many connections took which path.
    pub(crate) fn tallies(&self) -> [u64; Path::ALL.len()] {
        Path::ALL.map(|path| self.tally(path))
    }

    /// How many took one of them.
    pub(crate) fn tally(&self, path: Path) -> u64 {
        self.tally.get(&(path as u32), 0).unwrap().iter().sum()
    }

    /// Fails unless the program chose for `connections` new connections, each time by a path of its own.
    pub(crate) fn must_have_chosen(&self, connections: usize) {
        let tallies = self.tallies();
        let of = |path: Path| tallies[path as usize];
        assert_eq!(of(Path::Kernel), 0, "the kernel's hash chose: {tallies:?}");
        let chosen = of(Path::Affinity) + of(Path::Load) + of(Path::Spread) + of(Path::Fallback);
        assert_eq!(chosen, connections as u64, "{tallies:?}");
    }
}

fn listener(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Connects from an address; the handshake is done when it returns.
pub(crate) fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    if from.is_ipv6() {
        // Unlike IPv4, it wants each address to be an interface's, not only routed to this host.
        socket.set_freebind_v6(true)?;
    }
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}
