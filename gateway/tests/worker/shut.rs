//! Workers of an usher that is about to take over: at work, on sockets on which another process still accepts.

use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use usher::steering::Steering;
use usher::worker::AdmissionSettings;
use usher_flowcontrol::units::Seats;

use crate::crew::{Ship, served};
use crate::world::get;

async fn ship() -> Ship {
    let enough = AdmissionSettings::FlowControl { server_limit: Seats(400), together: None };
    Ship::launch(2, true, |settings| settings.admission = enough, |_| Ok(Steering::default())).await.unwrap()
}

#[tokio::test]
async fn who_is_shut_accepts_nobody_and_then_everybody_who_waits() {
    let mut ship = ship().await;
    ship.until_whole().await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(ship.client().await);
    }
    clients[0].send(get("/x")).await;
    for _ in 0..8 {
        assert_eq!(ship.look().await.counters.connections_accepted, 0);
    }
    ship.crew.open();
    ship.stub.next().await.answer(crate::stub::text("served"));
    assert_eq!(clients[0].answer().await.body, "served");
    for client in &mut clients[1..] {
        served(&mut ship, client).await;
    }
    ship.done().await;
}

#[tokio::test]
async fn who_is_shut_can_be_told_to_end() {
    let ship = ship().await;
    let mut client = ship.client().await;
    ship.crew.drain(Duration::from_secs(10));
    assert_eq!(
        client.0.read(&mut [0]).await.unwrap_or(0),
        0,
        "who waited there is told to go, or reset with the socket"
    );
    ship.done().await;
}
